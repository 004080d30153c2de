// RowValues: what the values of a family's row (proto/tandem/model/v1/family.proto) are for one
// config.json.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_VALUE_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_VALUE_H_

#include <google/protobuf/repeated_ptr_field.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/families/config_reader.h"
#include "common/model/layers/feed_forward_spec.h"

namespace tandem::model {

// Keys of config.json, of which the first that the file has counts, then perhaps a constant.
using RowValue = google::protobuf::RepeatedPtrField<std::string>;

// Returns "" for a value that can be read, else what is wrong with it.
std::string CheckRowValue(const RowValue& value);

// Whether `text` is a constant of values.
bool IsRowConstant(absl::string_view text);

// Errors are those of ConfigReader; a key that is missing and has no constant after it is an error
// too. `config` outlives the object.
class RowValues {
 public:
  explicit RowValues(const ConfigReader& config) : config_(config) {}

  // What constants such as `4 * hidden` stand for; the caller sets them in this order.
  struct Sizes {
    int64_t hidden = 0;
    int64_t num_heads = 0;
    int64_t num_kv_heads = 0;
    int64_t head_dim = 0;
  };
  Sizes sizes;

  const ConfigReader& config() const { return config_; }

  // An integer from 1 to `most`.
  absl::StatusOr<int64_t> Size(const RowValue& value, int64_t most) const;
  // An integer from 0 to `most`; null is 0.
  absl::StatusOr<int64_t> Count(const RowValue& value, int64_t most, int64_t unset) const;
  // A positive number.
  absl::StatusOr<double> Positive(const RowValue& value, double unset) const;
  // A number from 0 on, where 0 means that there is no limit; so does null.
  absl::StatusOr<double> Limit(const RowValue& value) const;
  absl::StatusOr<bool> Flag(const RowValue& value, bool unset) const;
  absl::StatusOr<Activation> ActivationOf(const RowValue& value) const;
  // The number that a constant stands for; nullopt for a key.
  std::optional<double> Constant(absl::string_view text) const;

  // A key of config.json with its object.
  struct Source {
    ConfigReader object;
    std::string key;

    bool Has() const { return object.Has(key.c_str()); }
    bool IsNull() const { return object.IsNull(key.c_str()); }
    absl::Status Invalid(const std::string& expected) const {
      return object.Invalid(key.c_str(), expected);
    }
  };
  // The key at `path`: "attn_config.clip_qkv".
  Source At(absl::string_view path) const;
  // The key of the value that config.json has; if it has none of them, the first. For errors.
  Source SourceOf(const RowValue& value) const;
  // Whether config.json has null in place of the value.
  bool IsNull(const RowValue& value) const { return Find(value).IsNull(); }
  // Whether the constant `text` counts.
  bool IsConstant(const RowValue& value, absl::string_view text) const {
    return Find(value).constant == text;
  }

 private:
  enum class Operation { kNone, kInverse, kInverseRoot, kOfHead, kPlusOne };
  struct Found {
    std::optional<Source> source;  // as for SourceOf()
    Operation operation = Operation::kNone;
    std::string constant;  // where config.json has none of the keys

    bool IsConstant() const { return !constant.empty(); }
    bool IsNull() const { return source.has_value() && source->IsNull(); }
  };
  Found Find(const RowValue& value) const;
  // The row's constant is not as expected.
  absl::Status InvalidConstant(const RowValue& value, const std::string& constant,
                               const std::string& expected) const;

  const ConfigReader& config_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_VALUE_H_
