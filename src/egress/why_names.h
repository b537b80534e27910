// The words of a refusal's reason, for logs and texts.
#pragma once

#include <array>

#include "codec/enum_names.h"
#include "egress/dial_protocol.h"

namespace temenos {

template <>
inline constexpr std::array enum_names<egress::Why> = {
    EnumName{egress::Why::kNone, "none"},
    EnumName{egress::Why::kNotAllowed, "not_allowed"},
    EnumName{egress::Why::kPort, "port"},
    EnumName{egress::Why::kUnknownAddress, "unknown_address"},
    EnumName{egress::Why::kSpecialAddress, "special_address"},
    EnumName{egress::Why::kHostAddress, "host_address"},
    EnumName{egress::Why::kPrivateAddress, "private_address"},
    EnumName{egress::Why::kBadName, "bad_name"},
    EnumName{egress::Why::kForeignName, "foreign_name"},
    EnumName{egress::Why::kNotTls, "not_tls"},
    EnumName{egress::Why::kNotHttp, "not_http"},
    EnumName{egress::Why::kSilent, "silent"},
    EnumName{egress::Why::kMalformed, "malformed"},
    EnumName{egress::Why::kNested, "nested"},
    EnumName{egress::Why::kNoSuchName, "no_such_name"},
    EnumName{egress::Why::kResolver, "resolver"},
    EnumName{egress::Why::kUnreachable, "unreachable"},
    EnumName{egress::Why::kTooMany, "too_many"},
    EnumName{egress::Why::kSelfTest, "self_test"}};

}  // namespace temenos
