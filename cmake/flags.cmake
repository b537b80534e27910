# Warnings, hardening and linker for every target of the project.
add_compile_options(
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Werror=return-type
  -Werror=switch -Wno-gnu-statement-expression-from-macro-expansion -Wno-missing-field-initializers
  -fstack-protector-strong -fno-strict-aliasing -fdiagnostics-color=always)
add_compile_definitions(_GNU_SOURCE TEMENOS_VERSION="${PROJECT_VERSION}")
# Of test programs: those of a release try what is optimized, and are not themselves, for a shorter build.
set(TEMENOS_TEST_FLAGS)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(TEMENOS_TEST_FLAGS -O0 -U_FORTIFY_SOURCE)
  add_compile_options(-D_FORTIFY_SOURCE=2 -D_GLIBCXX_ASSERTIONS -fstack-clash-protection -fcf-protection)
else()
  add_compile_options(-D_GLIBCXX_ASSERTIONS)
endif()
# as-needed: a program loads the libraries that it calls, and not all that its modules could call.
add_link_options(-fuse-ld=lld LINKER:--as-needed LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
if(TEMENOS_SANITIZE)
  add_compile_options(-fsanitize=${TEMENOS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TEMENOS_SANITIZE})
endif()
