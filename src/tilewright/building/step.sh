# Run one step of a build. Logs its start and end, and keeps its output and its CPU time.
#
#     sh step.sh EVENTS STEP FOLDER COMMAND...
events=$1
step=$2
cd "$3" || exit 1
shift 3
echo "start $step $$" >>"$events"
"$@" >"${step##*/}.log" 2>&1
code=$?
# In braces: a shell ends if it cannot write the output of `times` itself, and a full disk would lose the end of the step.
{ times; } >"${step##*/}.times"
echo "end $step $code" >>"$events"
exit $code
