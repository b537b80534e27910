# Headers that half of the files read, read once a tree: half of the time that a whole build takes.
#
# A precompiled header fits only what is compiled like it: temenos_pch_modules the modules, temenos_pch_covered
# those with a fuzz target, in the fuzz tree, and temenos_pch_tests the test programs.
option(TEMENOS_PRECOMPILE "precompile common headers" ON)

# temenos_precompile(TARGET HEADER…), or with REUSE_FROM and another target instead of headers.
function(temenos_precompile target)
  if(NOT TEMENOS_PRECOMPILE)
    return()
  endif()
  if(ARGV1 STREQUAL "REUSE_FROM")
    target_precompile_headers(${target} ${ARGN})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
  # ccache looks at what a precompiled header says, where it holds no time (its manual).
  target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
endfunction()

set(TEMENOS_PCH temenos_pch_modules)  # of modules here and below
if(TEMENOS_PRECOMPILE)
  set(common <algorithm> <array> <charconv> <chrono> <functional> <map> <memory> <optional> <set> <span>
             <sstream> <string> <string_view> <unordered_map> <vector> <tl/expected.hpp>)
  set(empty ${CMAKE_BINARY_DIR}/precompiled.cc)
  file(CONFIGURE OUTPUT ${empty} CONTENT "int main() {}\n")
  add_library(temenos_pch_modules STATIC EXCLUDE_FROM_ALL ${empty})
  temenos_precompile(temenos_pch_modules ${common})
  if(TEMENOS_FUZZ)
    add_library(temenos_pch_covered STATIC EXCLUDE_FROM_ALL ${empty})
    target_compile_options(temenos_pch_covered PRIVATE -fsanitize=fuzzer-no-link)
    temenos_precompile(temenos_pch_covered ${common})
  endif()
  if(TEMENOS_TESTS)
    add_executable(temenos_pch_tests EXCLUDE_FROM_ALL ${empty})
    target_compile_options(temenos_pch_tests PRIVATE ${TEMENOS_TEST_FLAGS})
    target_link_libraries(temenos_pch_tests PRIVATE GTest::gmock)
    temenos_precompile(temenos_pch_tests <gmock/gmock.h> <gtest/gtest.h> ${common} <filesystem> <fstream>
                       <future> <random> <thread>)
  endif()
endif()
