// The words of the policy's enums and dangers, for texts, flags and errors.
#pragma once

#include <array>

#include "codec/enum_names.h"
#include "temenos/policy.h"

namespace temenos {

template <>
inline constexpr std::array enum_names<NetworkMode> = {
    EnumName{NetworkMode::kNone, "none"}, EnumName{NetworkMode::kFiltered, "filtered"},
    EnumName{NetworkMode::kNat, "nat"}, EnumName{NetworkMode::kHost, "host"}};
template <>
inline constexpr std::array enum_names<Access> = {EnumName{Access::kRead, "read"},
                                                  EnumName{Access::kWrite, "write"}};
template <>
inline constexpr std::array enum_names<LimitsMode> = {
    EnumName{LimitsMode::kRequired, "required"}, EnumName{LimitsMode::kBestEffort, "best-effort"}};
template <>
inline constexpr std::array enum_names<Enforcement> = {
    EnumName{Enforcement::kRequired, "required"},
    EnumName{Enforcement::kCooperative, "cooperative"}};
template <>
inline constexpr std::array enum_names<Scratch> = {EnumName{Scratch::kDisk, "disk"},
                                                   EnumName{Scratch::kMemory, "memory"},
                                                   EnumName{Scratch::kRunsc, "runsc"}};
template <>
inline constexpr std::array enum_names<ProjectAccess> = {EnumName{ProjectAccess::kRead, "read"},
                                                         EnumName{ProjectAccess::kReview, "review"},
                                                         EnumName{ProjectAccess::kWrite, "write"}};
template <>
inline constexpr std::array enum_names<Platform> = {
    EnumName{Platform::kAuto, "auto"}, EnumName{Platform::kSystrap, "systrap"},
    EnumName{Platform::kPtrace, "ptrace"}, EnumName{Platform::kKvm, "kvm"}};

// A danger is a flag of Dangers, so its table maps to the member.
using Danger = bool Dangers::*;
template <>
inline constexpr std::array enum_names<Danger> = {
    EnumName<Danger>{&Dangers::host_network, "host-network"},
    EnumName<Danger>{&Dangers::home_bind, "home-bind"},
    EnumName<Danger>{&Dangers::shared_write, "shared-write"},
    EnumName<Danger>{&Dangers::cooperative, "cooperative"},
    EnumName<Danger>{&Dangers::autoexec, "autoexec"}};

}  // namespace temenos
