// The weights section of a family's row as rules for single parameters.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_WEIGHTS_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_WEIGHTS_H_

#include <string>
#include <vector>

#include "common/model/stored_rule.h"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

// At most one rule for a name. Names of parameters that a model of the family lacks are among them.
std::vector<StoredRule> StoredRulesOf(const v1::FamilyRow& row);

// What the names of a layer's tensors begin with in the folder, with "{layer}".
std::string LayerPrefixOf(const v1::FamilyRow& row);

// Names have "{layer}".
std::vector<StoredConstant> StoredConstantsOf(const v1::FamilyRow& row);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_WEIGHTS_H_
