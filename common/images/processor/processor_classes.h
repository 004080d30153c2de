// ProcessorClass: a class of transformers' image processors, and its defaults.
#ifndef TANDEM_COMMON_IMAGES_PROCESSOR_PROCESSOR_CLASSES_H_
#define TANDEM_COMMON_IMAGES_PROCESSOR_PROCESSOR_CLASSES_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/images/processor/preprocessor_config.h"

namespace tandem::images {

struct ProcessorClass {
  ProcessorFamily family;
  // A number as "size" means the shorter side, else both.
  bool size_is_shortest_edge;
  nlohmann::json defaults;
};

// Takes names with and without the suffix "Fast". UNIMPLEMENTED, with what there is, for others.
absl::StatusOr<ProcessorClass> FindProcessorClass(absl::string_view type);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_PROCESSOR_PROCESSOR_CLASSES_H_
