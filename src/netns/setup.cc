#include "netns/setup.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/try.h"
#include "netns/kernel_settings.h"
#include "netns/listeners.h"
#include "netns/netlink.h"
#include "netns/ruleset.h"

namespace temenos::netns {
namespace {

constexpr int kTimeoutMs = 5'000;

Result<void> make_links(Netlink& router, Netlink& box, const Plan& plan, int box_ns) {
  TRY(router.link_up(1));
  TRY(router.make_pair({kRouterLink, kLinkIndex, kRouterMac}, {kBoxLink, kLinkIndex, kBoxMac},
                       plan.mtu, box_ns));
  TRY(router.add_address(kLinkIndex, plan.router4, plan.prefix4));
  TRY(router.add_address(kLinkIndex, plan.router6, plan.prefix6));
  // Known for good: no question of the kernel's, no entry by an answer of the box's.
  for (const auto& address : {plan.box4, plan.box6}) {
    TRY(router.add_neighbour(kLinkIndex, address, kBoxMac));
  }
  for (const int family : {AF_INET, AF_INET6}) {
    TRY(router.add_mark_rule(family, kMark, kTable));
    TRY(router.add_local_default(family, kTable));
  }
  TRY(box.link_up(1));
  TRY(box.add_address(kLinkIndex, plan.box4, plan.prefix4));
  TRY(box.add_address(kLinkIndex, plan.box6, plan.prefix6));
  for (const auto& address : {plan.router4, plan.router6}) {
    TRY(box.add_neighbour(kLinkIndex, address, kRouterMac));
  }
  return {};
}

Result<void> open_the_way(Netlink& router, Netlink& box, const Plan& plan) {
  Netlink ear = TRY(Netlink::open(RTMGRP_LINK));
  TRY(router.link_up(kLinkIndex));
  TRY(box.link_up(kLinkIndex));  // this one sends at once, since its other end is up
  // A route needs its link up.
  for (const auto& address : {plan.router4, plan.router6}) {
    TRY(box.add_default_route(kLinkIndex, address));
  }
  return ear.wait_until_up(kLinkIndex, kTimeoutMs);
}

// Run by mistake in a namespace that is in use, the host's above all, it must change nothing.
Result<void> check_new() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return fail_errno(errno, "listing links");
  bool used = false;
  for (const ifaddrs* link = list; link != nullptr; link = link->ifa_next) {
    used = used || (link->ifa_flags & IFF_UP) != 0;
  }
  freeifaddrs(list);
  if (!used) return {};
  return fail(Code::kConflict, "the box's network namespace is in use already",
              "start the box again");
}

}  // namespace

SetUp set_up(const Plan& plan) {
  SetUp out;
  Step step = Step::kNamespaces;
  auto run = [&]() -> Result<void> {
    const UniqueFd box_ns(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    TRY(check_new());
    if (!box_ns) return fail_errno(errno, "opening the box's network namespace");
    Netlink box = TRY(Netlink::open());  // stays in the box's
    TRY(settle_box());
    if (unshare(CLONE_NEWNET) != 0) {
      return fail_errno(errno, "making a network namespace",
                        "sudo sysctl user.max_net_namespaces=65536");
    }
    step = Step::kLinks;
    Netlink router = TRY(Netlink::open());
    TRY(settle_router());
    TRY(make_links(router, box, plan, box_ns.get()));
    // The rules before the way is open.
    step = Step::kNft;
    Ruleset rules = TRY(Ruleset::open());
    auto loaded = rules.load(plan);
    if (!loaded) {
      TRY(rules.close_everything(plan));
      step = Step::kTproxy;
      return loaded;
    }
    step = Step::kListeners;
    out.listeners = TRY(make_listeners(plan));
    step = Step::kLinks;
    return open_the_way(router, box, plan);
  };
  auto done = run();
  out.ok = done.has_value();
  if (!done) out.failure = {step, std::move(done).error()};
  return out;
}

}  // namespace temenos::netns
