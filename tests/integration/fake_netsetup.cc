// temenos-netsetup on a host whose kernel has no TPROXY.
#include "egress/netns_answer.h"

int main() {
  using namespace temenos;
  netns::Failure failure{netns::Step::kTproxy, {}};
  failure.error = fail(Code::kUnsupported, "no TPROXY here", "sudo modprobe x").value();
  return egress::send_failure(egress::kAnswerFd, failure) ? 1 : 2;
}
