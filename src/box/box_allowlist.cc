// Edits of the allowlist of a box. The order of the steps is what allowlist_edit.h promises.
#include "base/try.h"
#include "box/allowlist_plan.h"
#include "box/box_impl.h"
#include "sys/file_sys.h"
#include "temenos/box.h"

namespace temenos {
namespace box {
namespace {

constexpr std::chrono::seconds kTurnPatience{100};  // as long as a start or an end may take

Result<void> check_filtered(const Policy& policy) {
  if (policy->network == NetworkMode::kFiltered) return {};
  const char* mode = policy->network == NetworkMode::kNone  ? "none"
                     : policy->network == NetworkMode::kNat ? "nat"
                                                            : "host";
  return fail(Code::kInvalidArgument,
              "the box has the network '" + std::string(mode) + "', which has no allowlist",
              "make a box with the network 'filtered'");
}

AllowlistEdit edited(const Policy& policy) {
  AllowlistEdit out;
  for (const auto& rule : policy->allow_hosts) out.entries.push_back(rule.to_string());
  return out;
}

}  // namespace

Result<Policy> BoxHandle::policy_now() const {
  if (!record_) return *policy_;
  auto record = read_record(data_.directory.get());
  if (record) return std::move(record->policy);
  if (record.error().code == Code::kNotFound) {
    return fail(Code::kNotFound, "the box was removed", "make it again");
  }
  return tl::make_unexpected(std::move(record)
                                 .error()
                                 .with_context("cannot read what the box may do")
                                 .with_hint("remove the box"));
}

Result<void> BoxHandle::keep_policy(const Policy& policy) {
  if (!record_) {
    policy_ = policy;
    return {};
  }
  BoxRecord record = *record_;
  record.policy = policy;
  TRY(write_record(data_.directory.get(), record));
  *record_ = std::move(record);
  return {};
}

// A box that has ended meanwhile reaches nothing any more: what is kept counts.
Result<void> BoxHandle::apply_allowlist(KeeperLink& link, const Rules& rules, Edit edit) {
  const UniqueFd file = TRY(sys::sealed_memory("temenos-rules", lines_of(rules)));
  const auto applied = link.set_rules(file.get(), edit == Edit::kDeny);
  if (!applied) return record_ && link.why_ended(0) ? Result<void>() : applied;
  if (const auto news = link.flush_network_log()) note_trouble(news->trouble);
  return {};
}

Result<Rules> BoxHandle::allowlist() const {
  const Policy policy = TRY(policy_now());
  TRY(check_filtered(policy));
  return policy->allow_hosts;
}

Result<AllowlistEdit> BoxHandle::edit_allowlist(Edit edit, const Rules& rules) {
  UniqueFd turn;
  // Nobody starts it, or edits, between the first look and the last step.
  if (record_) turn = TRY(store::take_turn(data_, kTurnPatience));
  const Policy before = TRY(policy_now());
  TRY(check_filtered(before));
  const bool allow = edit == Edit::kAllow;
  const Policy after =
      TRY(before.with_allowlist(allow ? with_entries(before->allow_hosts, rules)
                                      : TRY(without_entries(before->allow_hosts, rules))));
  std::unique_ptr<KeeperLink> link;
  if (record_) {
    auto connected = KeeperLink::connect(data_);
    if (connected) link = std::make_unique<KeeperLink>(std::move(*connected));
    if (!connected && connected.error().code != Code::kNotFound) {
      return tl::make_unexpected(connected.error());
    }
  } else if (!keeper_) {
    return fail(Code::kBoxDied, "the box has ended", "start another one");
  }
  KeeperLink* const keeper = record_ ? link.get() : keeper_.get();
  if (allow) TRY(keep_policy(after));
  // Also what it should have: a caller may have been killed in the middle of this.
  Result<void> applied;
  if (keeper != nullptr) applied = apply_allowlist(*keeper, after->allow_hosts, edit);
  if (!applied) {
    if (allow && !keep_policy(before)) {
      return tl::make_unexpected(
          std::move(applied).error().with_context("the list has them, the live box has not"));
    }
    return tl::make_unexpected(std::move(applied).error());
  }
  if (!allow) {
    if (auto kept = keep_policy(after); !kept) {
      return tl::make_unexpected(std::move(kept).error().with_context(
          keeper != nullptr ? "denied until the box ends, and not for its next life"
                            : "nothing is denied"));
    }
  }
  AllowlistEdit out = edited(after);
  if (!allow) out.notes = still_allowed(after->allow_hosts, rules);
  return out;
}

}  // namespace box

namespace {

Result<AllowlistEdit> edit(Box::Impl& impl, box::BoxHandle::Edit what,
                           const std::vector<std::string>& entries) {
  auto edited = [&]() -> Result<AllowlistEdit> {
    return impl.handle.edit_allowlist(what, TRY(box::parse_entries(entries)));
  }();
  if (!edited) edited = tl::make_unexpected(impl.explain(edited.error()));
  audit::Event event(what == box::BoxHandle::Edit::kAllow ? "net_allow" : "net_deny");
  event.texts("entries", entries).flag("ok", edited.has_value());
  if (!edited) event.text("error", edited.error().to_string());
  impl.log.write(event);
  return edited;
}

}  // namespace

Result<std::vector<std::string>> Box::allowed_hosts() const {
  std::vector<std::string> out;
  for (const auto& rule : TRY(impl_->handle.allowlist())) out.push_back(rule.to_string());
  return out;
}

Result<AllowlistEdit> Box::allow_hosts(const std::vector<std::string>& entries) {
  return edit(*impl_, box::BoxHandle::Edit::kAllow, entries);
}

Result<AllowlistEdit> Box::deny_hosts(const std::vector<std::string>& entries) {
  return edit(*impl_, box::BoxHandle::Edit::kDeny, entries);
}

}  // namespace temenos
