#include "keeper/network_requests.h"

#include <utility>

namespace temenos::keeper {

std::optional<Message> answer_for_network(EgressWatch& egress, const Message& request,
                                          std::vector<UniqueFd>& fds) {
  Message reply;
  reply.kind = Message::kOk;
  switch (request.kind) {
    case Message::kRules: {
      const auto replaced = egress.replace_rules(std::move(fds[0]), request.value != 0);
      if (replaced) return reply;
      // Not a failure of the box, whose last word that would be.
      reply = failure(replaced.error());
      reply.kind = Message::kOk;
      reply.value = 1;
      return reply;
    }
    case Message::kFlushNetworkLog:
      // Nor is this: who wants to know whether anything was refused looks for himself.
      if (const auto refused = egress.flush_log()) {
        reply.value = *refused;
        put_text(reply, egress.trouble());
      } else {
        reply = failure(refused.error());
        reply.kind = Message::kOk;
      }
      return reply;
    case Message::kProxy:
      reply.proxy = egress.proxy();
      return reply;
    default:
      return std::nullopt;
  }
}

}  // namespace temenos::keeper
