#include "common/model/stored_name.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tandem::model {
namespace {

constexpr char kModel[] = "model.";

constexpr std::array<std::pair<absl::string_view, int64_t StoredNumbers::*>, 3> kPlaceholders = {{
    {"{layer}", &StoredNumbers::layer},
    {"{expert}", &StoredNumbers::expert},
    {"{head}", &StoredNumbers::head},
}};

// Takes the placeholder that `text` begins with off it; null if there is none.
int64_t StoredNumbers::*ConsumePlaceholder(absl::string_view& text) {
  for (const auto& [placeholder, number] : kPlaceholders) {
    if (absl::ConsumePrefix(&text, placeholder)) return number;
  }
  return nullptr;
}

// "a.b." -> "a."; "a." -> "".
absl::string_view WithoutLastPart(absl::string_view prefix) {
  absl::ConsumeSuffix(&prefix, ".");
  return prefix.substr(0, prefix.rfind('.') + 1);
}

}  // namespace

std::optional<StoredNumbers> MatchStoredName(absl::string_view stored_template,
                                             absl::string_view name) {
  StoredNumbers numbers;
  while (!stored_template.empty()) {
    int64_t StoredNumbers::*const number = ConsumePlaceholder(stored_template);
    if (number == nullptr) {
      if (name.empty() || name[0] != stored_template[0]) return std::nullopt;
      name.remove_prefix(1);
      stored_template.remove_prefix(1);
      continue;
    }
    const auto digits = static_cast<size_t>(
        std::find_if_not(name.begin(), name.end(), absl::ascii_isdigit) - name.begin());
    int64_t value = 0;
    if (!absl::SimpleAtoi(name.substr(0, digits), &value)) return std::nullopt;
    if (numbers.*number >= 0 && numbers.*number != value) return std::nullopt;
    numbers.*number = value;
    name.remove_prefix(digits);
  }
  if (!name.empty()) return std::nullopt;
  return numbers;
}

std::string FillStoredName(absl::string_view stored_template, const StoredNumbers& numbers) {
  std::string name;
  while (!stored_template.empty()) {
    int64_t StoredNumbers::*const number = ConsumePlaceholder(stored_template);
    if (number != nullptr) {
      absl::StrAppend(&name, numbers.*number);
    } else {
      name.push_back(stored_template[0]);
      stored_template.remove_prefix(1);
    }
  }
  return name;
}

FolderPrefix FolderPrefix::Find(const std::vector<std::string>& optional_prefixes,
                                const std::vector<std::string>& names,
                                const io::ModelFolder& folder) {
  const auto found = [&](const FolderPrefix& variant) {
    return std::count_if(names.begin(), names.end(), [&](const std::string& name) {
      return folder.Contains(variant.Changed(name)) || folder.Contains(name);
    });
  };
  FolderPrefix best;
  auto most = found(best);
  for (const std::string& prefix : optional_prefixes) {
    FolderPrefix with, without, inside, within;
    with.added_ = prefix;
    without.removed_ = prefix;
    inside.added_ = kModel + prefix;
    inside.removed_ = kModel;
    within.added_ = prefix;
    within.removed_ = std::string(WithoutLastPart(prefix));
    for (const FolderPrefix& variant : {with, without, inside, within}) {
      const auto count = found(variant);
      if (count <= most) continue;
      most = count;
      best = variant;
    }
  }
  return best;
}

std::string FolderPrefix::Changed(const std::string& name) const {
  return absl::StrCat(added_, absl::StripPrefix(name, removed_));
}

std::string FolderPrefix::InFolder(const std::string& name, const io::ModelFolder& folder) const {
  std::string changed = Changed(name);
  return !folder.Contains(changed) && folder.Contains(name) ? name : changed;
}

std::string FolderPrefix::InRules(const std::string& name) const {
  return absl::StrCat(removed_, absl::StripPrefix(name, added_));
}

}  // namespace tandem::model
