# One step of a build. Says when it starts and ends, and keeps what it printed and what it cost.
#
#     sh step.sh EVENTS STEP FOLDER COMMAND...
events=$1
step=$2
cd "$3" || exit 1
shift 3
echo "start $step $$" >>"$events"
"$@" >"${step##*/}.log" 2>&1
code=$?
times >"${step##*/}.times"
echo "end $step $code" >>"$events"
exit $code
