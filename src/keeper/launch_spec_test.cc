#include "keeper/launch_spec.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/file_sys.h"
#include "sys/process_sys.h"

namespace temenos::keeper {
namespace {

LaunchSpec example() {
  LaunchSpec spec;
  spec.hostname = "temenos";
  spec.platform = "systrap";
  spec.runsc = "/opt/runsc";
  spec.init = "/opt/init";
  spec.session = "/opt/session";
  spec.scope = "/opt/scope";
  spec.netsetup = "/opt/netsetup";
  spec.dialer = "/opt/dialer";
  spec.front = "/opt/front";
  spec.allow_hosts = {"example.com", "[2001:db8::1]:443"};
  spec.network = NetworkMode::kFiltered;
  spec.limits = {"cgroup1", "temenos-x", true, 128, 500, 30, 100, 464, 50, "no limit of x"};
  spec.data_dir = "/data/one";
  spec.binds = {{"/a", "/b", true, {"hidden dir"}, {".git/config", "x/y"}},
                {"/c", "/d", false, {}, {}}};
  spec.memory = {{"/m", 64}};
  spec.start_timeout_s = 7;
  spec.scratch = Scratch::kRunsc;
  spec.scratch_mb = 9;
  spec.ttl_s = 10;
  spec.idle_s = 11;
  return spec;
}

Launch launch_of(LaunchSpec spec) {
  Launch launch;
  auto null = [] { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); };
  for (std::size_t i = 0; i < spec.binds.size(); ++i) launch.sources.push_back(null());
  launch.spec = std::move(spec);
  launch.data_dir = null();
  launch.client = null();
  return launch;
}

TEST(LaunchSpecJson, ComesBackAsItWas) {
  const auto back = launch_spec_from_json(to_json(example()));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(*back, example());
}

TEST(LaunchSpecJson, AProxyGoesWithTheHostsNetwork) {
  LaunchSpec spec = example();
  spec.proxy = true;
  EXPECT_FALSE(launch_spec_from_json(to_json(spec)));
  spec.network = NetworkMode::kHost;
  const auto back = launch_spec_from_json(to_json(spec));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_TRUE(back->proxy);
}

TEST(LaunchSpecJson, NothingElseIsTaken) {
  const std::string good = to_json(example());
  auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const auto& bad :
       {std::string(), std::string("{"), std::string("[]"), good + "x",
        with("\"hostname\"", "\"hostnam\""), with("\"temenos\"", "7"),
        with("\"start_timeout_s\":7", "\"start_timeout_s\":0"),
        with("\"start_timeout_s\":7", "\"start_timeout_s\":1e9"),
        with("\"size_mb\":64", "\"size_mb\":-1"), with("\"writable\":true", "\"writable\":1"),
        with("\"runsc\",\"scratch_mb\"", "\"tape\",\"scratch_mb\""),
        with("\"filtered\"", "\"open\""), with("\"filtered\"", "\"nat\""),
        with("\"scratch_mb\":9", "\"scratch_mb\":0"), with("\"ttl_s\":10", "\"ttl_s\":-1"),
        with("\"idle_s\":11", "\"idle_s\":9e15"),
        with("{\"hostname\"", "{\"extra\":1,\"hostname\"")}) {
    EXPECT_FALSE(launch_spec_from_json(bad)) << bad;
  }
}

TEST(LaunchMessage, CarriesItsDescriptors) {
  auto pair = sys::socket_pair(SOCK_SEQPACKET);
  ASSERT_TRUE(pair);
  ASSERT_TRUE(send_launch(pair->first.get(), launch_of(example())));
  const auto launch = receive_launch(pair->second.get());
  ASSERT_TRUE(launch) << launch.error().to_string();
  EXPECT_EQ(launch->spec, example());
  ASSERT_EQ(launch->sources.size(), 2u);
  for (const int fd : {launch->data_dir.get(), launch->client.get(), launch->sources[1].get()}) {
    struct stat st{};
    ASSERT_EQ(fstat(fd, &st), 0);
    EXPECT_TRUE(S_ISCHR(st.st_mode));
    EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  }
}

TEST(LaunchMessage, TooManyMountsAreRefusedBeforeTheyAreSent) {
  auto pair = sys::socket_pair(SOCK_SEQPACKET);
  ASSERT_TRUE(pair);
  auto spec = example();
  spec.binds.resize(500, spec.binds[1]);
  const auto sent = send_launch(pair->first.get(), launch_of(std::move(spec)));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::kExhausted);
  EXPECT_FALSE(sent.error().hint.empty());
}

TEST(LaunchMessage, AWrongOneIsRefused) {
  auto pair = sys::socket_pair(SOCK_SEQPACKET);
  ASSERT_TRUE(pair);
  ASSERT_TRUE(sys::send_with_fds(pair->first.get(), "launch", {}));
  EXPECT_EQ(receive_launch(pair->second.get()).error().code, Code::kProtocol);
  ASSERT_TRUE(sys::send_with_fds(pair->first.get(), "lunch", {}));
  EXPECT_EQ(receive_launch(pair->second.get()).error().code, Code::kProtocol);
  auto launch = launch_of(example());
  launch.sources.pop_back();
  ASSERT_TRUE(send_launch(pair->first.get(), launch));
  EXPECT_EQ(receive_launch(pair->second.get()).error().code, Code::kProtocol);
  pair->first.reset();
  EXPECT_FALSE(receive_launch(pair->second.get()));
}

}  // namespace
}  // namespace temenos::keeper
