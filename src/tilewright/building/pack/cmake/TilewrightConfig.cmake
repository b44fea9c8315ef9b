# Builds packs of kernels inside a C++ build.
#
#   cmake -B build -DTilewright_ROOT="$(tilewright cmake)"
#
#   find_package(Tilewright REQUIRED)
#   tilewright_add_pack(my_kernels KERNELS mine.toml fp16_rcr_essential GPUS gfx942 gfx950)
#   target_link_libraries(app PRIVATE my_kernels::headers)   # opens a library at run time
#   target_link_libraries(app PRIVATE my_kernels::gfx942)    # or is linked with one
#
# KERNELS are kernel-set files, names of preselected sets and names of kernels, also of several ops; GPUS the GPUs to
# build for. JOBS limits the number of compilers. The pack is written to ${my_kernels_FOLDER} when the targets are built,
# and again when a set file has changed. Kernels that are in Tilewright's store are not compiled again.
cmake_minimum_required(VERSION 3.16)
find_program(TILEWRIGHT_EXECUTABLE tilewright DOC "the command of Tilewright")
if(NOT TILEWRIGHT_EXECUTABLE)
  set(Tilewright_FOUND FALSE)
  set(Tilewright_NOT_FOUND_MESSAGE "there is no command tilewright in PATH. Set TILEWRIGHT_EXECUTABLE.")
  return()
endif()

function(tilewright_add_pack name)
  cmake_parse_arguments(PARSE_ARGV 1 PACK "" "JOBS" "KERNELS;GPUS")
  if(PACK_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tilewright_add_pack: unknown words ${PACK_UNPARSED_ARGUMENTS}. Known: KERNELS, GPUS, JOBS.")
  endif()
  foreach(_tw_word KERNELS GPUS)
    if(NOT PACK_${_tw_word})
      message(FATAL_ERROR "tilewright_add_pack(${name}): ${_tw_word} is missing.")
    endif()
  endforeach()
  set(_tw_folder "${CMAKE_CURRENT_BINARY_DIR}/${name}")
  set(_tw_kernels)
  set(_tw_files)
  foreach(_tw_each IN LISTS PACK_KERNELS)
    get_filename_component(_tw_path "${_tw_each}" ABSOLUTE)
    if(EXISTS "${_tw_path}")
      list(APPEND _tw_files "${_tw_path}")
      list(APPEND _tw_kernels "${_tw_path}")
    else()
      list(APPEND _tw_kernels "${_tw_each}")
    endif()
  endforeach()
  set(_tw_jobs)
  if(PACK_JOBS)
    set(_tw_jobs --jobs "${PACK_JOBS}")
  endif()
  set(_tw_libraries)
  foreach(_tw_gpu IN LISTS PACK_GPUS)
    list(APPEND _tw_libraries "${_tw_folder}/lib/lib${name}_${_tw_gpu}.so")
  endforeach()
  string(REPLACE ";" "," _tw_gpus "${PACK_GPUS}")
  add_custom_command(
    OUTPUT "${_tw_folder}/manifest.json"
    BYPRODUCTS ${_tw_libraries}
    COMMAND "${TILEWRIGHT_EXECUTABLE}" build ${_tw_kernels} --gpu "${_tw_gpus}" ${_tw_jobs} --pack "${_tw_folder}"
            --pack-name "${name}"
    DEPENDS ${_tw_files}
    COMMENT "Building the pack ${name} for ${_tw_gpus}"
    VERBATIM)
  add_custom_target(${name}_pack DEPENDS "${_tw_folder}/manifest.json")
  add_library(${name}_headers INTERFACE)
  add_library(${name}::headers ALIAS ${name}_headers)
  target_include_directories(${name}_headers INTERFACE "${_tw_folder}/include")
  target_link_libraries(${name}_headers INTERFACE ${CMAKE_DL_LIBS})
  add_dependencies(${name}_headers ${name}_pack)
  foreach(_tw_gpu IN LISTS PACK_GPUS)
    add_library(${name}_${_tw_gpu} INTERFACE)
    add_library(${name}::${_tw_gpu} ALIAS ${name}_${_tw_gpu})
    target_link_libraries(${name}_${_tw_gpu} INTERFACE ${name}_headers "${_tw_folder}/lib/lib${name}_${_tw_gpu}.so")
    add_dependencies(${name}_${_tw_gpu} ${name}_pack)
  endforeach()
  set(${name}_FOLDER "${_tw_folder}" PARENT_SCOPE)
  set(${name}_GPUS "${PACK_GPUS}" PARENT_SCOPE)
endfunction()
