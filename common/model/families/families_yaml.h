// The text of families.yaml.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_FAMILIES_YAML_H_
#define TANDEM_COMMON_MODEL_FAMILIES_FAMILIES_YAML_H_

namespace tandem::model {

extern const char kFamiliesYaml[];

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_FAMILIES_YAML_H_
