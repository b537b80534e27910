// temenos-netsetup on a host whose kernel has no TPROXY.
#include "netns/answer.h"

int main() {
  using namespace temenos;
  netns::Failure failure{netns::Step::kTproxy, {}};
  failure.error = fail(Code::kUnsupported, "no TPROXY here", "sudo modprobe x").value();
  return netns::send_failure(netns::kAnswerFd, failure) ? 1 : 2;
}
