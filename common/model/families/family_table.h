// FamilyTable: the model families, each a row of families.yaml or of the user's file.
//
//   const v1::FamilyRow* row = Families().FindArchitecture("LlamaForCausalLM");
#ifndef TANDEM_COMMON_MODEL_FAMILIES_FAMILY_TABLE_H_
#define TANDEM_COMMON_MODEL_FAMILIES_FAMILY_TABLE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/model/families/family_check.h"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

class FamilyTable {
 public:
  // Adds the rows of a YAML text, which may be like rows that are already there; a row with an
  // architecture that is already there takes its place. INVALID_ARGUMENT, one line for each error
  // ("families.yaml:12: families[1].like: ..."), leaves the table unchanged. `name` stands for the
  // file in errors.
  absl::Status Add(absl::string_view text, const std::string& name);

  // Complete rows, without `like`; null if there is none. Rows stay where they are until Add().
  const v1::FamilyRow* FindArchitecture(absl::string_view architecture) const;
  const v1::FamilyRow* FindModelType(absl::string_view model_type) const;
  // The row of the language model of an architecture or model type with towers (FamilyRow::part_of).
  const v1::FamilyRow* FindPartOf(absl::string_view name) const;
  // The architecture most like `architecture`; "" if none is.
  std::string Nearest(absl::string_view architecture) const;

  const std::vector<v1::FamilyRow>& rows() const { return rows_; }

 private:
  // The row families(i) of `table`, whose rows it may be like, with all that it inherits.
  v1::FamilyRow Complete(const v1::FamilyTable& table, int i, const std::string& path,
                         FamilyChecker& checker) const;

  std::vector<v1::FamilyRow> rows_;
};

// Puts the statements of `row` in place of those of `*onto`, or before them, as FamilyRow.like says.
void PutOnto(const v1::FamilyRow& row, v1::FamilyRow* onto);

// The families of this process: families.yaml and what AddFamilyFile() added.
const FamilyTable& Families();

// Adds the rows of a file (model.family_file) to Families(); nothing for "". Call it before the
// first config.json is read and before other threads start. Errors are those of FamilyTable::Add(),
// and those of reading the file.
absl::Status AddFamilyFile(const std::string& path);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_FAMILY_TABLE_H_
