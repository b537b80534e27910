#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "codec/json.h"
#include "gvisor/oci.h"
#include "gvisor/runsc.h"
#include "sys/file_sys.h"

namespace temenos::gvisor {
namespace {

class RunscTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = "/tmp/temenos-runsc-XXXXXX";
    ASSERT_NE(mkdtemp(path_.data()), nullptr);
  }
  void TearDown() override {
    const UniqueFd tmp(open("/tmp", O_PATH | O_CLOEXEC));
    EXPECT_TRUE(sys::remove_tree(tmp.get(), path_.substr(5)));
  }
  std::string script(const std::string& body) {
    const std::string file = path_ + "/runsc";
    std::ofstream(file) << "#!/bin/sh\n" << body;
    chmod(file.c_str(), 0755);
    return file;
  }
  std::string path_;
};

TEST_F(RunscTest, FindsTheConfiguredOneOrSaysWhatIsWrong) {
  const std::string file = script("exit 0\n");
  EXPECT_EQ(*find_runsc(file, "/nowhere"), file);
  EXPECT_EQ(*find_runsc("", path_), file);
  const auto bad = find_runsc(path_ + "/absent", path_);
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().what.find("TEMENOS_RUNSC"), std::string::npos);
  EXPECT_FALSE(bad.error().hint.empty());
}

TEST_F(RunscTest, AnOldOneIsNamedWithWhatItLacks) {
  const std::string file = script(
      "case $1 in --version) echo 'runsc version 0.0~20221219.0';;\n"
      "flags) printf '  -root string\\n  -overlay2-other\\n  -host-uds value\\n';; esac\n");
  const auto runsc = inspect_runsc(file);
  ASSERT_TRUE(runsc);
  EXPECT_EQ(runsc->version, "0.0~20221219.0");
  EXPECT_EQ(runsc->missing_flags,
            (std::vector<std::string>{"directfs", "file-access-mounts", "ignore-cgroups",
                                      "overlay2", "panic-log", "qdisc"}));
  EXPECT_NE(unusable_runsc(*runsc).to_string().find("too old"), std::string::npos);
}

TEST_F(RunscTest, SomethingElseIsNoRunsc) {
  EXPECT_FALSE(inspect_runsc(script("echo hello\n")));
  EXPECT_FALSE(inspect_runsc(script("exit 1\n")));
}

TEST(Oci, IsJsonWithHostileNamesKeptAsData) {
  OciConfig config{"/rootfs", {"/run/temenos/init"}, "box", {{"/a\"b", "bind", "/m/0", {"rbind"}}}};
  const auto parsed = parse_json(oci_config_json(config));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->at("mounts").at(0).at("destination").as_string(), "/a\"b");
  EXPECT_EQ(parsed->at("process").at("env").as_array().size(), 0u);
}

TEST(Oci, TheNetworkNamespaceIsNamedOrTheSandboxHasItsOwn) {
  for (const std::string path : {"", "/proc/self/ns/net"}) {
    OciConfig config{"/rootfs", {"/init"}, "box", {}, 0, path};
    std::string found;
    const auto parsed = parse_json(oci_config_json(config));
    ASSERT_TRUE(parsed);
    for (const auto& ns : parsed->at("linux").at("namespaces").as_array()) {
      if (ns.at("type").as_string() == "network") found = ns.at("path").as_string();
    }
    EXPECT_EQ(found, path);
  }
}

}  // namespace
}  // namespace temenos::gvisor
