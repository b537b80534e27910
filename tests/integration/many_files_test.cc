// A hundred thousand small files, as a build or an unpacked package has them; a run with
// TEMENOS_PERCENT may make thirty thousand.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/integration/program.h"

namespace temenos::testing {
namespace {

// $1 thousand in $0: made, listed, looked up, removed.
constexpr const char* kScript = R"sh(python3 - "$0" "$1" <<'END'
import os, shutil, sys
os.chdir(sys.argv[1])
thousands = int(sys.argv[2])
for d in range(thousands):
    os.mkdir(f'm{d}')
    for i in range(1000):
        with open(f'm{d}/{i}', 'w') as f:
            if i % 100 == 0: f.write(f'{d} {i}')
seen = sum(len(files) for _, _, files in os.walk('.'))
assert seen == thousands * 1000, seen
assert open('m17/900').read() == '17 900' and os.stat('m29/999').st_size == 0
for d in range(thousands): shutil.rmtree(f'm{d}')
assert os.listdir('.') == [], os.listdir('.')
print('all')
END
)sh";

class ManyFilesTest : public IntegrationTest {
 protected:
  void check(const std::string& directory) {
    const std::string shared = host_.dir("shared");
    const auto result = host_.temenos(
        {"run", "--no-net", "--timeout", "500", "--write", shared, "--", "/bin/sh", "-c", kScript,
         directory.empty() ? shared : directory, std::to_string(std::max(30, part_of(100)))});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, "all\n");
    EXPECT_EQ(host_shell("ls -A " + shared), "");
  }
};

TEST_F(ManyFilesTest, InTheBoxsOwnRoot) { check("/srv"); }
TEST_F(ManyFilesTest, InADirectoryOfTheHost) { check(""); }

}  // namespace
}  // namespace temenos::testing
