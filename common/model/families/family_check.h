// FamilyChecker: finds what is wrong with the rows of a families.yaml.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_FAMILY_CHECK_H_
#define TANDEM_COMMON_MODEL_FAMILIES_FAMILY_CHECK_H_

#include <google/protobuf/message.h>

#include <string>
#include <utility>
#include <vector>

#include "common/config/place.h"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

// Collects errors, one line each: "families.yaml:12: families[1].like: what is wrong". `places`
// says where the text states each key, and outlives the checker.
class FamilyChecker {
 public:
  FamilyChecker(std::string name, const config::Places& places)
      : name_(std::move(name)), places_(places) {}

  const std::vector<std::string>& errors() const { return errors_; }

  // Checks a row by itself, before it has what it inherits. `path` is its place in the table:
  // "families[1]".
  void CheckRow(const v1::FamilyRow& row, const std::string& path);
  // Adds an error of the row's `key`, or of the whole row if that is empty.
  void Add(const std::string& path, const std::string& key, const std::string& problem);

  static bool IsSet(const google::protobuf::Message& message,
                    const google::protobuf::FieldDescriptor& field);

 private:
  void CheckVariant(const v1::FamilyRow& row, const std::string& path);
  void CheckParts(const v1::FamilyRow& row, const std::string& path);
  void CheckValues(const google::protobuf::Message& message, const std::string& path);
  void CheckWeights(const google::protobuf::RepeatedPtrField<v1::StoredWeight>& weights,
                    const std::string& path);

  const std::string name_;
  const config::Places& places_;
  std::vector<std::string> errors_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_FAMILY_CHECK_H_
