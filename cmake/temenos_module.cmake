# temenos_module(NAME SOURCES … DEPS … LIBS … TESTS …)
#
# Declares src/NAME as a library (without SOURCES: of headers alone). DEPS are the only modules it may include (tests/style holds the
# includes to it); LIBS are outside libraries. TESTS are the unit tests beside the sources; they become
# one program, each of whose cases is a ctest of the label `unit`; TEST_DEPS and TEST_LIBS are for it alone.
# FUZZ are fuzz targets (fuzz_planted.cmake); FUZZ_SOURCES and FUZZ_DEPS what they need, where all of the
# module is much more: the fuzz tree builds no more of it.
find_package(GTest QUIET)
include(${CMAKE_SOURCE_DIR}/cmake/precompiled.cmake)

if(TEMENOS_FUZZ)
  # All that the label `fuzz` runs: nothing else of the tree is built with the fuzzer's flags.
  add_custom_target(fuzz_targets)
endif()

function(temenos_module name)
  cmake_parse_arguments(M "" "" "SOURCES;DEPS;LIBS;TESTS;TEST_DEPS;TEST_LIBS;FUZZ;FUZZ_SOURCES;FUZZ_DEPS"
                        ${ARGN})
  if(TEMENOS_FUZZ AND M_FUZZ_SOURCES AND NOT TEMENOS_TESTS)
    set(M_SOURCES ${M_FUZZ_SOURCES})
    set(M_DEPS ${M_FUZZ_DEPS})
  endif()
  set(kind STATIC)
  set(scope PUBLIC)
  if(NOT M_SOURCES)
    set(kind INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(temenos_${name} ${kind} ${M_SOURCES})
  target_include_directories(temenos_${name} ${scope} ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
  foreach(dep ${M_DEPS})
    target_link_libraries(temenos_${name} ${scope} temenos_${dep})
  endforeach()
  target_link_libraries(temenos_${name} ${scope} ${M_LIBS})
  if(M_SOURCES)
    temenos_precompile(temenos_${name} REUSE_FROM ${TEMENOS_PCH})
  endif()
  if(TEMENOS_TESTS AND M_TESTS)
    temenos_test(${name}_test LABEL unit SOURCES ${M_TESTS} DEPS ${name} ${M_TEST_DEPS}
                 LIBS ${M_TEST_LIBS})
  endif()
  if(TEMENOS_FUZZ)
    foreach(source ${M_FUZZ})
      get_filename_component(target ${source} NAME_WE)
      temenos_fuzz_program(${target} SOURCES ${source} LIBS temenos_${name})
      # No fuzz target without the proof that it finds something (temenos_planted_fuzz).
      add_dependencies(fuzz_targets ${target} ${target}_planted)
    endforeach()
  endif()
endfunction()

# What a box may do differs between root and an ordinary user, so tests of these labels run as both.
set(TEMENOS_USER_LABELS integration leak crash swarm limits)
set(TEMENOS_TEST_USER "" CACHE STRING
    "account that root runs tests of those labels as, too (scripts/test sets it)")

# temenos_test(NAME LABEL … SOURCES … DEPS …): a GoogleTest program, its cases known to ctest as
# LABEL.Suite.Case and, when they run as TEMENOS_TEST_USER too, as user.LABEL.Suite.Case. ROOT_ONLY: they
# do not, since they need root's rights and do themselves what is to be done as another user.
function(temenos_test name)
  cmake_parse_arguments(T "ROOT_ONLY" "LABEL;TIMEOUT" "SOURCES;DEPS;LIBS;PROPERTIES" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  add_executable(${name} ${T_SOURCES})
  target_compile_options(${name} PRIVATE ${TEMENOS_TEST_FLAGS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  foreach(dep ${T_DEPS})
    target_link_libraries(${name} PRIVATE temenos_${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE ${T_LIBS} GTest::gmock GTest::gtest_main)
  temenos_precompile(${name} REUSE_FROM temenos_pch_tests)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  include(GoogleTest)
  set(discover DISCOVERY_TIMEOUT 60
      PROPERTIES LABELS ${T_LABEL} TIMEOUT ${T_TIMEOUT} ${T_PROPERTIES})
  gtest_discover_tests(${name} TEST_PREFIX "${T_LABEL}." ${discover})
  if(TEMENOS_TEST_USER AND T_LABEL IN_LIST TEMENOS_USER_LABELS AND NOT T_ROOT_ONLY)
    # gtest_discover_tests reads the emulator when it is called: this second set of entries gets the
    # launcher, and nothing else of the target does.
    set_target_properties(${name} PROPERTIES CROSSCOMPILING_EMULATOR
      "${CMAKE_SOURCE_DIR}/scripts/lib/as-user;${CMAKE_BINARY_DIR};${TEMENOS_TEST_USER}")
    gtest_discover_tests(${name} TEST_PREFIX "user.${T_LABEL}." TEST_LIST ${name}_USER_TESTS
                         ${discover})
    set_target_properties(${name} PROPERTIES CROSSCOMPILING_EMULATOR "")
  endif()
endfunction()

# temenos_test_library(NAME SOURCES … DEPS … LIBS …): temenos_NAME, what several test programs share.
function(temenos_test_library name)
  cmake_parse_arguments(L "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(temenos_${name} STATIC ${L_SOURCES})
  target_include_directories(temenos_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  foreach(dep ${L_DEPS})
    target_link_libraries(temenos_${name} PUBLIC temenos_${dep})
  endforeach()
  target_link_libraries(temenos_${name} PUBLIC ${L_LIBS} GTest::gmock)
  # Compiled like the programs that it goes into, so that their precompiled headers fit.
  set_target_properties(temenos_${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(temenos_${name} PRIVATE -fPIE ${TEMENOS_TEST_FLAGS})
  temenos_precompile(temenos_${name} REUSE_FROM temenos_pch_tests)
endfunction()

# temenos_program(NAME DIR SOURCES … DEPS …): a program in DIR (bin or libexec/temenos).
function(temenos_program name dir)
  cmake_parse_arguments(P "STATIC" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_executable(${name} ${P_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
  foreach(dep ${P_DEPS})
    target_link_libraries(${name} PRIVATE temenos_${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE ${P_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${dir})
  install(TARGETS ${name} RUNTIME DESTINATION ${dir})
endfunction()
