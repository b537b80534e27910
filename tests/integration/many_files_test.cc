// A hundred thousand small files, as a build or an unpacked package has them.
#include <gtest/gtest.h>

#include "tests/integration/program.h"

namespace temenos::testing {
namespace {

// In `directory`: made, listed, looked up, removed.
constexpr const char* kScript = R"sh(python3 - "$0" <<'END'
import os, shutil, sys
os.chdir(sys.argv[1])
for d in range(100):
    os.mkdir(f'm{d}')
    for i in range(1000):
        with open(f'm{d}/{i}', 'w') as f:
            if i % 100 == 0: f.write(f'{d} {i}')
seen = sum(len(files) for _, _, files in os.walk('.'))
assert seen == 100000, seen
assert open('m77/900').read() == '77 900' and os.stat('m99/999').st_size == 0
for d in range(100): shutil.rmtree(f'm{d}')
assert os.listdir('.') == [], os.listdir('.')
print('all')
END
)sh";

class ManyFilesTest : public IntegrationTest {
 protected:
  void check(const std::string& directory) {
    const std::string shared = host_.dir("shared");
    const auto result =
        host_.temenos({"run", "--no-net", "--timeout", "500", "--write", shared, "--", "/bin/sh",
                       "-c", kScript, directory.empty() ? shared : directory});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, "all\n");
    EXPECT_EQ(host_shell("ls -A " + shared), "");
  }
};

TEST_F(ManyFilesTest, InTheBoxsOwnRoot) { check("/srv"); }
TEST_F(ManyFilesTest, InADirectoryOfTheHost) { check(""); }

}  // namespace
}  // namespace temenos::testing
