#include "box/box_store.h"

#include <algorithm>

#include "base/text.h"
#include "base/time.h"
#include "base/try.h"
#include "keeper/keeper.h"

namespace temenos::box {
namespace {

constexpr auto kKind = store::Kind::kBoxes;
constexpr std::chrono::seconds kTurnPatience{100};  // as long as a start or an end may take

}  // namespace

Result<BoxHandle> BoxStore::create(const BoxName& name, const std::string& project_dir,
                                   const Policy& policy) {
  TRY(check_name(name.name));
  TRY(refuse_what_is_not_built(policy));
  for (const auto* path : {&name.scope, &project_dir}) {
    if (is_valid_utf8(*path)) continue;
    return fail(Code::kInvalidArgument, "the project's path " + escape(*path) + " is not UTF-8",
                "rename the directory");
  }
  BoxRecord record{name, project_dir, utc_now(), policy};
  store::DataDir dir = TRY(store::stage(dirs_.data, kKind));
  auto made = write_record(dir.directory.get(), record);
  if (made) made = store::publish(dirs_.data, kKind, dir, id_of(name));
  if (!made) {
    (void)store::remove(dirs_.data, kKind, std::move(dir), keeper::remove_box);
    Error error = std::move(made).error();
    if (error.code == Code::kAlreadyExists) {
      return fail(Code::kAlreadyExists, "there is a box named '" + name.name + "' already",
                  "use it, choose another name, or remove it first");
    }
    return tl::make_unexpected(std::move(error).with_context("cannot make the box"));
  }
  // Staging held it, so that no sweep took it; now its name does.
  dir.life.reset();
  return BoxHandle::of(dirs_, std::move(dir), std::move(record));
}

Result<store::DataDir> BoxStore::open_dir(const BoxName& name) const {
  TRY(check_name(name.name));
  auto dir = store::open(dirs_.data, kKind, id_of(name));
  if (!dir && dir.error().code == Code::kNotFound) {
    return fail(Code::kNotFound, "no such box: " + name.name, "`temenos ls` shows those there are");
  }
  return dir;
}

Result<BoxHandle> BoxStore::find(const BoxName& name) const {
  auto dir = TRY(open_dir(name));
  auto record = read_record(dir.directory.get());
  if (record && !(record->name == name)) {
    record = fail(Code::kConflict, "its record names another box", "remove the box");
  }
  if (!record) {
    return tl::make_unexpected(std::move(record)
                                   .error()
                                   .with_context("cannot use the box " + name.name)
                                   .with_hint("remove the box"));
  }
  return BoxHandle::of(dirs_, std::move(dir), std::move(*record));
}

Result<std::vector<BoxInfo>> BoxStore::list() const {
  std::vector<BoxInfo> boxes;
  for (const auto& id : TRY(store::list(dirs_.data, kKind))) {
    BoxInfo info;
    info.id = id;
    const auto dir = store::open(dirs_.data, kKind, id);
    if (!dir) continue;  // removed since
    info.alive = store::is_alive(*dir);
    auto record = read_record(dir->directory.get());
    if (record) {
      info.name = record->name;
      info.project_dir = record->project_dir;
      info.created = record->created;
    } else {
      info.trouble = record.error().to_string();
    }
    boxes.push_back(std::move(info));
  }
  std::sort(boxes.begin(), boxes.end(), [](const BoxInfo& a, const BoxInfo& b) {
    return std::tie(a.name.scope, a.name.name, a.id) < std::tie(b.name.scope, b.name.name, b.id);
  });
  return boxes;
}

Result<BoxEnd> BoxStore::remove(const BoxName& name) {
  // Without its record: one that cannot be read must not keep the box for ever.
  auto dir = TRY(open_dir(name));
  const UniqueFd turn = TRY(store::take_turn(dir, kTurnPatience));
  BoxEnd end = TRY(stop_box(dirs_, dir, nullptr));
  TRY(store::remove(dirs_.data, kKind, std::move(dir), keeper::remove_box));
  return end;
}

}  // namespace temenos::box
