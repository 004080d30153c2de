#include "common/model/families/row_value.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using nlohmann::json;

constexpr absl::string_view kInverse = "1 / ";
constexpr absl::string_view kInverseRoot = " ^ -0.5";
constexpr absl::string_view kOfHead = " / head_dim";
constexpr absl::string_view kPlusOne = " + 1";
constexpr char kActivations[] =
    "silu, gelu, gelu_pytorch_tanh, quick_gelu, relu, relu2, xielu, "
    "clamped_swiglu";

// By the names of transformers' ACT2FN.
std::optional<Activation> ActivationNamed(absl::string_view name) {
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu" || name == "gelu_python") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh" ||
      name == "gelu_python_tanh") {
    return Activation::kGeluTanh;
  }
  if (name == "quick_gelu") return Activation::kQuickGelu;
  if (name == "relu") return Activation::kRelu;
  if (name == "relu2") return Activation::kRelu2;
  if (name == "xielu") return Activation::kXielu;
  if (name == "clamped_swiglu") return Activation::kClampedSwiglu;
  return std::nullopt;
}

// The number of a constant with a name; nullopt for another text.
std::optional<double> Named(absl::string_view text, const RowValues::Sizes& sizes) {
  const auto hidden = static_cast<double>(sizes.hidden);
  if (text == "hidden") return hidden;
  if (text == "4 * hidden") return 4 * hidden;
  if (text == "hidden ^ 0.5") return std::sqrt(hidden);
  if (text == "hidden ^ -0.5") return sizes.hidden == 0 ? 0.0 : std::pow(hidden, -0.5);
  if (text == "num_heads") return static_cast<double>(sizes.num_heads);
  if (text == "2 * num_kv_heads") return 2 * static_cast<double>(sizes.num_kv_heads);
  if (text == "hidden / num_heads") {
    return sizes.num_heads == 0 ? 0.0 : static_cast<double>(sizes.hidden / sizes.num_heads);
  }
  if (text == "head_dim ^ -0.5") {
    return sizes.head_dim == 0 ? 0.0 : std::pow(static_cast<double>(sizes.head_dim), -0.5);
  }
  return std::nullopt;
}

// A key without its operation.
absl::string_view KeyOf(absl::string_view text) {
  absl::ConsumePrefix(&text, kInverse);
  for (const absl::string_view suffix : {kInverseRoot, kOfHead, kPlusOne}) {
    if (absl::ConsumeSuffix(&text, suffix)) break;
  }
  return text;
}

}  // namespace

bool IsRowConstant(absl::string_view text) {
  double number = 0;  // "nan" and "inf" too, which CheckRowValue() refuses
  return text == "true" || text == "false" || absl::SimpleAtod(text, &number) ||
         Named(text, {}).has_value() || ActivationNamed(text).has_value();
}

std::string CheckRowValue(const RowValue& value) {
  for (int i = 0; i < value.size(); ++i) {
    double number = 0;
    if (absl::SimpleAtod(value[i], &number) && !std::isfinite(number)) {
      return absl::StrCat("expected a finite number, found ", value[i]);
    }
    if (IsRowConstant(value[i])) {
      if (i + 1 < value.size()) {
        return absl::StrCat("expected keys of config.json before \"", value[i + 1], "\", found \"",
                            value[i], "\", after which nothing counts");
      }
      continue;
    }
    const absl::string_view key = KeyOf(value[i]);
    for (const char c : key) {
      if (!absl::ascii_isalnum(c) && c != '_' && c != '.') {
        return absl::StrCat("expected a key of config.json or a constant, found \"", value[i],
                            "\"");
      }
    }
    if (key.empty()) return "expected a key of config.json or a constant, found an empty text";
  }
  return "";
}

RowValues::Source RowValues::At(absl::string_view path) const {
  const size_t dot = path.find('.');
  if (dot == absl::string_view::npos) return {config_, std::string(path)};
  static const json* const kNothing = new json(json::object());
  const std::string section(path.substr(0, dot));
  const bool found = config_.Has(section.c_str()) && config_.At(section.c_str()).is_object();
  return {ConfigReader(found ? config_.At(section.c_str()) : *kNothing,
                       absl::StrCat(config_.place(), ": ", section)),
          std::string(path.substr(dot + 1))};
}

RowValues::Found RowValues::Find(const RowValue& value) const {
  Found found;
  for (const std::string& text : value) {
    if (IsRowConstant(text)) {
      found.constant = text;
      break;
    }
    Source source = At(KeyOf(text));
    const bool has = source.Has();
    if (!has && found.source.has_value()) continue;
    found.source.emplace(std::move(source));
    found.operation = absl::StartsWith(text, kInverse)     ? Operation::kInverse
                      : absl::EndsWith(text, kInverseRoot) ? Operation::kInverseRoot
                      : absl::EndsWith(text, kOfHead)      ? Operation::kOfHead
                      : absl::EndsWith(text, kPlusOne)     ? Operation::kPlusOne
                                                           : Operation::kNone;
    if (has) break;
  }
  return found;
}

RowValues::Source RowValues::SourceOf(const RowValue& value) const {
  Found found = Find(value);
  if (found.source.has_value()) return *std::move(found.source);
  return {config_, value.empty() ? "" : value[0]};
}

std::optional<double> RowValues::Constant(absl::string_view text) const {
  double number = 0;
  if (absl::SimpleAtod(text, &number)) return number;
  return Named(text, sizes);
}

absl::Status RowValues::InvalidConstant(const RowValue& value, const std::string& constant,
                                        const std::string& expected) const {
  return SourceOf(value).Invalid(absl::StrCat(expected, "; its family's row says ", constant,
                                              " where config.json has no value"));
}

absl::StatusOr<int64_t> RowValues::Size(const RowValue& value, int64_t most) const {
  const Found found = Find(value);
  if (found.IsConstant()) {
    const double size = Constant(found.constant).value_or(0.0);
    if (size >= 1 && size <= static_cast<double>(most)) return static_cast<int64_t>(size);
    return InvalidConstant(value, found.constant, absl::StrCat("an integer from 1 to ", most));
  }
  ASSIGN_OR_RETURN(const int64_t size, found.source->object.Size(found.source->key.c_str(), most));
  return size + (found.operation == Operation::kPlusOne ? 1 : 0);
}

absl::StatusOr<int64_t> RowValues::Count(const RowValue& value, int64_t most, int64_t unset) const {
  if (value.empty()) return unset;
  const Found found = Find(value);
  if (found.IsNull()) return 0;
  if (found.IsConstant()) {
    const double count = Constant(found.constant).value_or(0.0);
    if (count >= 0 && count <= static_cast<double>(most)) return static_cast<int64_t>(count);
    return InvalidConstant(value, found.constant, absl::StrCat("an integer from 0 to ", most));
  }
  ASSIGN_OR_RETURN(const int64_t count,
                   found.source->object.Count(found.source->key.c_str(), most, unset));
  return count + (found.operation == Operation::kPlusOne && found.source->Has() ? 1 : 0);
}

absl::StatusOr<double> RowValues::Positive(const RowValue& value, double unset) const {
  if (value.empty()) return unset;
  const Found found = Find(value);
  if (found.IsConstant()) {
    const double number = Constant(found.constant).value_or(unset);
    if (number > 0 || number == unset) return number;
    return InvalidConstant(value, found.constant, "a positive number");
  }
  if (!found.source->Has()) return found.source->Invalid("a positive number");
  ASSIGN_OR_RETURN(const double number,
                   found.source->object.Positive(found.source->key.c_str(), unset));
  switch (found.operation) {
    case Operation::kInverse:
      return 1.0 / number;
    case Operation::kOfHead:
      return number / static_cast<double>(sizes.head_dim);
    case Operation::kInverseRoot:
      return std::pow(number, -0.5);
    case Operation::kPlusOne:
      return number + 1.0;
    case Operation::kNone:
      break;
  }
  return number;
}

absl::StatusOr<double> RowValues::Limit(const RowValue& value) const {
  if (value.empty()) return 0.0;
  const Found found = Find(value);
  if (found.IsNull()) return 0.0;
  if (found.IsConstant()) {
    const double number = Constant(found.constant).value_or(0.0);
    return number >= 0 ? absl::StatusOr<double>(number)
                       : InvalidConstant(value, found.constant, "a number from 0 on");
  }
  return found.source->object.NonNegative(found.source->key.c_str(), 0.0);
}

absl::StatusOr<bool> RowValues::Flag(const RowValue& value, bool unset) const {
  if (value.empty()) return unset;
  const Found found = Find(value);
  if (found.IsConstant()) return found.constant == "true";
  if (!found.source->Has()) return found.source->Invalid("true or false");
  return found.source->object.Flag(found.source->key.c_str(), unset);
}

absl::StatusOr<Activation> RowValues::ActivationOf(const RowValue& value) const {
  const Found found = Find(value);
  if (found.IsConstant()) return ActivationNamed(found.constant).value_or(Activation::kSilu);
  const Source& source = *found.source;
  ASSIGN_OR_RETURN(const std::string name, source.object.Text(source.key.c_str(), ""));
  const std::optional<Activation> activation = ActivationNamed(name);
  if (activation.has_value()) return *activation;
  if (!source.Has()) return source.Invalid("the name of an activation");
  return source.object.Unsupported(source.key.c_str(), kActivations);
}

}  // namespace tandem::model
