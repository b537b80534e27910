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

# The program of a fuzz target; LIBS what it links.
function(temenos_fuzz_program name)
  cmake_parse_arguments(P "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${P_SOURCES})
  # Compiled like a library, so that the precompiled headers of those fit.
  target_compile_options(${name} PRIVATE -fPIC)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE ${P_LIBS})
  temenos_precompile(${name} REUSE_FROM ${TEMENOS_PCH})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endfunction()

function(temenos_planted_fuzz target macro)
  if(NOT EXISTS ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${target})
    message(FATAL_ERROR "${target} has no seeds in tests/fuzz/corpus/${target}")
  endif()
  get_target_property(libraries ${target} LINK_LIBRARIES)
  temenos_fuzz_program(${target}_planted SOURCES ${target}.cc ${ARGN} LIBS ${libraries})
  target_compile_definitions(${target}_planted PRIVATE ${macro})
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
