#include "common/model/quantization/quantization.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/families/config_reader.h"
#include "common/model/quantization/fp8.h"
#include "common/model/quantization/mxfp4.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"

namespace tandem::model {
namespace {

using Reader = absl::StatusOr<std::shared_ptr<const Quantization>> (*)(const ConfigReader&);

struct Method {
  const char* name;
  Reader read;
};

constexpr std::array<Method, 2> kMethods = {{
    {"fp8", ReadFp8Quantization},
    {"mxfp4", ReadMxfp4Quantization},
}};

}  // namespace

absl::StatusOr<std::shared_ptr<const Quantization>> ReadQuantization(const nlohmann::json& config,
                                                                     const std::string& place) {
  constexpr const char* kKey = "quantization_config";
  const ConfigReader reader(config, place);
  if (!config.is_object() || !reader.Has(kKey)) return std::shared_ptr<const Quantization>();
  if (!reader.At(kKey).is_object()) return reader.Invalid(kKey, "an object");
  const ConfigReader settings(reader.At(kKey), absl::StrCat(place, ": ", kKey));
  ASSIGN_OR_RETURN(const std::string name, settings.Text("quant_method", ""));
  for (const Method& method : kMethods) {
    if (name == method.name) return method.read(settings);
  }
  return settings.Unsupported(
      "quant_method",
      absl::StrCat(
          absl::StrJoin(
              kMethods, ", ",
              [](std::string* out, const Method& method) { absl::StrAppend(out, method.name); }),
          "; use the checkpoint before it was quantised, or load this one with transformers "
          "and save model.dequantize() with save_pretrained()"));
}

absl::StatusOr<io::TensorView> FindPart(const io::ModelFolder& folder, const StoredPart& part,
                                        std::initializer_list<io::DType> types) {
  ASSIGN_OR_RETURN(io::TensorView tensor, folder.Find(part.name));
  const std::string place = absl::StrCat(folder.FileOf(part.name), ": tensor ", part.name);
  if (tensor.shape != part.shape) {
    return absl::FailedPreconditionError(
        absl::StrCat(place, ": shape [", absl::StrJoin(tensor.shape, ", "), "] where [",
                     absl::StrJoin(part.shape, ", "), "] was expected"));
  }
  if (std::find(types.begin(), types.end(), tensor.dtype) == types.end()) {
    return absl::UnimplementedError(
        absl::StrCat(place, " has element type ", io::Name(tensor.dtype), "; expected ",
                     absl::StrJoin(types, " or ", [](std::string* out, io::DType type) {
                       absl::StrAppend(out, io::Name(type));
                     })));
  }
  return tensor;
}

}  // namespace tandem::model
