# Fuzz targets as ctest entries (label `fuzz`), each proven by a planted defect. Preset `fuzz` only.
#
# In the module's CMakeLists.txt:
#
#   if(TEMENOS_FUZZ)
#     include(${CMAKE_SOURCE_DIR}/cmake/fuzz_planted.cmake)   # before temenos_module: it also turns
#   endif()                                                   # coverage on for the module's sources
#   temenos_module(policy … FUZZ host_rule_fuzz.cc)
#   if(TEMENOS_FUZZ)
#     temenos_planted_fuzz(host_rule_fuzz TEMENOS_PLANT_HOST_RULE host_rule.cc)
#   endif()
#
# temenos_planted_fuzz(TARGET MACRO SOURCE…)
#   TARGET   a fuzz target that temenos_module's FUZZ made, its source ./TARGET.cc
#   MACRO    inside `#ifdef MACRO` the SOURCEs carry a defect that breaks an invariant TARGET asserts
#   SOURCE…  the module's whole .cc files that look at MACRO; they are compiled again with it and
#            replace their namesakes in the library
# It registers
#   TARGET.smoke          seeds of tests/fuzz/corpus/TARGET, then TEMENOS_FUZZ_SECONDS (20) of fuzzing: must
#                         not crash
#   TARGET.finds_planted  the same with MACRO: must crash (status 77 and a crash file) within 120 s
# tests/fuzz/corpus/TARGET.dict, when there, is the dictionary. The seeds are read, never written.

if(CMAKE_SCRIPT_MODE_FILE)
  # cmake -DPROGRAM= -DSEEDS= -DWORK= -DEXPECT=clean|crash -P fuzz_planted.cmake
  file(REMOVE_RECURSE ${WORK})
  file(MAKE_DIRECTORY ${WORK}/corpus)
  set(seconds 20)
  if(DEFINED ENV{TEMENOS_FUZZ_SECONDS})
    set(seconds $ENV{TEMENOS_FUZZ_SECONDS})
  endif()
  if(EXPECT STREQUAL "crash")
    set(seconds 120)
  endif()
  set(options -max_total_time=${seconds} -timeout=10 -rss_limit_mb=2048 -max_len=4096
      -print_final_stats=1 -artifact_prefix=${WORK}/)
  if(EXISTS ${SEEDS}.dict)
    list(APPEND options -dict=${SEEDS}.dict)
  endif()
  execute_process(COMMAND ${PROGRAM} ${options} ${WORK}/corpus ${SEEDS}
                  RESULT_VARIABLE status OUTPUT_FILE ${WORK}/log ERROR_FILE ${WORK}/log)
  file(READ ${WORK}/log tail)
  string(LENGTH "${tail}" length)
  if(length GREATER 3000)
    math(EXPR start "${length} - 3000")
    string(SUBSTRING "${tail}" ${start} -1 tail)
  endif()
  file(GLOB crashes ${WORK}/crash-*)
  if(EXPECT STREQUAL "clean" AND NOT status EQUAL 0)
    message(FATAL_ERROR "${PROGRAM} ended with ${status}; the input is in ${WORK}\n${tail}")
  elseif(EXPECT STREQUAL "crash" AND NOT (status EQUAL 77 AND crashes))
    message(FATAL_ERROR "${PROGRAM} ended with ${status} and did not find the planted defect\n${tail}")
  endif()
  message("${tail}")
  return()
endif()

# Without this libFuzzer sees the branches of the fuzz target alone and not those of the parser.
add_compile_options(-fsanitize=fuzzer-no-link)
set(TEMENOS_PCH temenos_pch_covered)

function(temenos_planted_fuzz target macro)
  if(NOT EXISTS ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${target})
    message(FATAL_ERROR "${target} has no seeds in tests/fuzz/corpus/${target}")
  endif()
  add_executable(${target}_planted ${target}.cc ${ARGN})
  target_compile_definitions(${target}_planted PRIVATE ${macro})
  target_compile_options(${target}_planted PRIVATE -fsanitize=fuzzer)
  target_link_options(${target}_planted PRIVATE -fsanitize=fuzzer)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  target_link_libraries(${target}_planted PRIVATE ${libraries})
  set_target_properties(${target}_planted PROPERTIES
                        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  temenos_fuzz_test(${target}.smoke ${target} ${target} clean)
  temenos_fuzz_test(${target}.finds_planted ${target}_planted ${target} crash)
endfunction()

function(temenos_fuzz_test name program corpus expect)
  add_test(NAME ${name}
           COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:${program}>
                   -DSEEDS=${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${corpus}
                   -DWORK=${CMAKE_BINARY_DIR}/fuzz/scratch/${name} -DEXPECT=${expect}
                   -P ${CMAKE_SOURCE_DIR}/cmake/fuzz_planted.cmake)
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT 200)
endfunction()
