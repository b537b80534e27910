#include "box/link_walk.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "box/scratch_tree.h"

namespace temenos::box {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using End = LinkWalk::End;

class LinkWalks : public ::testing::Test {
 protected:
  LinkWalk walk(const std::string& path) {
    return walk_links(tree_.fd(), tree_.path(), path, steps_);
  }
  ScratchTree tree_;
  std::size_t steps_ = 1000;
};

TEST_F(LinkWalks, EveryHopIsKnown) {
  tree_.file("c2/env");
  tree_.link("conf", "c2");
  tree_.link(".envrc", "conf/env");
  const auto found = walk(".envrc");
  EXPECT_EQ(found.end, End::kFile);
  EXPECT_EQ(found.path, "c2/env");
  EXPECT_THAT(found.links, ElementsAre(Pair(".envrc", "conf/env"), Pair("conf", "c2")));
}

TEST_F(LinkWalks, Ends) {
  tree_.file("d/f");
  ASSERT_EQ(mkfifo((tree_.path() + "/fifo").c_str(), 0600), 0);
  EXPECT_EQ(walk("d").end, End::kDirectory);
  EXPECT_EQ(walk("d/../d/./f").end, End::kFile);
  EXPECT_EQ(walk("fifo").end, End::kOther);
  EXPECT_EQ(walk("d/..").path, ".");
  EXPECT_EQ(walk("d/no/more").end, End::kMissing);
  EXPECT_EQ(walk("d/no/more").path, "d/no/more");
  EXPECT_EQ(walk("d/f/more").end, End::kMissing);
}

TEST_F(LinkWalks, OutAndInAgain) {
  tree_.file("f");
  const std::string name = tree_.path().substr(tree_.path().rfind('/') + 1);
  for (const auto& path :
       {"../" + name + "/f", tree_.path() + "/f", tree_.path() + "/../" + name + "/./f"}) {
    const auto found = walk(path);
    EXPECT_EQ(found.end, End::kFile) << path;
    EXPECT_EQ(found.path, "f") << path;
  }
  tree_.link("absolute", tree_.path() + "/f");
  EXPECT_EQ(walk("absolute").path, "f");
  EXPECT_EQ(walk("/etc/passwd").end, End::kOutside);
  EXPECT_EQ(walk("/etc/passwd").path, "/etc/passwd");
  EXPECT_EQ(walk("../no-such-thing").end, End::kOutside);
  EXPECT_EQ(walk("../no-such-thing").path, "");
  // A link of the user's own, outside, that leads in.
  tree_.outside_link("way", name);
  EXPECT_EQ(walk("../way/f").path, "f");
  EXPECT_EQ(walk("../way/new").end, End::kMissing);
  EXPECT_EQ(walk("../way/new").path, "new");
}

TEST_F(LinkWalks, LoopsAndLengthEnd) {
  tree_.link("a", "b");
  tree_.link("b", "a");
  EXPECT_EQ(walk("a").end, End::kUnknown);
  std::string deep;
  for (int i = 0; i < 200; ++i)
    deep += "../" + tree_.path().substr(tree_.path().rfind('/') + 1) + "/";
  EXPECT_EQ(walk(deep).end, End::kDirectory);
  steps_ = 2;
  tree_.file("x/y/z");
  EXPECT_EQ(walk("x/y/z").end, End::kUnknown);
  EXPECT_EQ(steps_, 0u);
}

}  // namespace
}  // namespace temenos::box
