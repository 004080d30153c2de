// Names of StoredRules: templates with "{layer}", "{expert}" and "{head}" for numbers, and prefixes
// that a folder may have or lack.
#ifndef TANDEM_COMMON_MODEL_STORED_NAME_H_
#define TANDEM_COMMON_MODEL_STORED_NAME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/io/model_folder.h"

namespace tandem::model {

struct StoredNumbers {
  int64_t layer = -1;  // -1: not in the template
  int64_t expert = -1;
  int64_t head = -1;

  friend bool operator==(const StoredNumbers&, const StoredNumbers&) = default;
};

// Returns the numbers with which the template is the name; nullopt if there are none.
std::optional<StoredNumbers> MatchStoredName(absl::string_view stored_template,
                                             absl::string_view name);

// Replaces each placeholder by its number.
std::string FillStoredName(absl::string_view stored_template, const StoredNumbers& numbers);

// How a folder's names differ from those of the rules: a prefix in front of all tensors, behind their
// "model.", or missing from them; or the last part of "a.b." behind their "a.". Tensors outside the prefix
// ("lm_head.weight") keep their names.
class FolderPrefix {
 public:
  // No difference.
  FolderPrefix() = default;

  // Takes the variant under which the folder has most of `names`, the rules' names, each with the
  // difference or as it is.
  static FolderPrefix Find(const std::vector<std::string>& optional_prefixes,
                           const std::vector<std::string>& names, const io::ModelFolder& folder);

  // Returns the folder's name for a rule's. A name that the folder has as it is stays, if it does
  // not have it with the difference.
  std::string InFolder(const std::string& name, const io::ModelFolder& folder) const;
  // The other way, for any name of the folder.
  std::string InRules(const std::string& name) const;

 private:
  std::string Changed(const std::string& name) const;

  std::string added_;
  std::string removed_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_STORED_NAME_H_
