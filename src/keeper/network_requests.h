// What callers ask about a network that front and dialer keep: of a box's keeper (callers.h), and
// of the keeper of a proxy alone (proxy_main.h).
#pragma once

#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "keeper/egress_watch.h"
#include "keeper/messages.h"

namespace temenos::keeper {

// Nothing for a request of another kind. `fds`: as descriptors_of() the kind says.
std::optional<Message> answer_for_network(EgressWatch& egress, const Message& request,
                                          std::vector<UniqueFd>& fds);

}  // namespace temenos::keeper
