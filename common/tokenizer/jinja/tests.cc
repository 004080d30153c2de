// Tests: the names that may follow `is`.
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/jinja/runtime.h"
#include "common/tokenizer/jinja/text.h"

namespace tandem::tokenizer::jinja {
namespace {

using Predicate = bool (*)(const Value&);

bool IsIterable(const Value& v) {
  return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined() || v.is_loop();
}

const absl::flat_hash_map<std::string, Predicate>& Predicates() {
  static const auto* const predicates = new absl::flat_hash_map<std::string, Predicate>{
      {"defined", [](const Value& v) { return !v.is_undefined(); }},
      {"undefined", [](const Value& v) { return v.is_undefined(); }},
      {"none", [](const Value& v) { return v.is_none(); }},
      {"boolean", [](const Value& v) { return v.is_bool(); }},
      {"true", [](const Value& v) { return v.is_bool() && v.Truthy(); }},
      {"false", [](const Value& v) { return v.is_bool() && !v.Truthy(); }},
      {"integer", [](const Value& v) { return v.is_int(); }},
      {"float", [](const Value& v) { return v.is_float(); }},
      {"number", [](const Value& v) { return v.is_number(); }},
      {"string", [](const Value& v) { return v.is_string(); }},
      {"mapping", [](const Value& v) { return v.is_dict(); }},
      {"iterable", IsIterable},
      {"sequence",
       [](const Value& v) {
         return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined();
       }},
      {"callable", [](const Value& v) { return v.is_callable() || v.is_loop(); }},
      {"escaped", [](const Value&) { return false; }},
      {"lower",
       [](const Value& v) { return v.Str() == Lower(v.Str()) && v.Str() != Upper(v.Str()); }},
      {"upper",
       [](const Value& v) { return v.Str() == Upper(v.Str()) && v.Str() != Lower(v.Str()); }},
      {"filter", [](const Value& v) { return v.is_string() && HasFilter(v.string()); }},
      {"test", [](const Value& v) { return v.is_string() && HasTest(v.string()); }},
  };
  return *predicates;
}

// Tests of two values that are comparisons.
const absl::flat_hash_map<std::string, std::string>& Comparisons() {
  static const auto* const comparisons = new absl::flat_hash_map<std::string, std::string>{
      {"eq", "=="}, {"equalto", "=="}, {"==", "=="},      {"ne", "!="},
      {"!=", "!="}, {"lt", "<"},       {"lessthan", "<"}, {"<", "<"},
      {"le", "<="}, {"<=", "<="},      {"gt", ">"},       {"greaterthan", ">"},
      {">", ">"},   {"ge", ">="},      {">=", ">="},      {"in", "in"}};
  return *comparisons;
}

}  // namespace

bool HasTest(absl::string_view name) {
  return Predicates().contains(name) || Comparisons().contains(name) || name == "odd" ||
         name == "even" || name == "divisibleby" || name == "sameas";
}

absl::StatusOr<bool> Runtime::CallTest(const std::string& name, Arguments& arguments) {
  const Value& subject = arguments.positional[0];
  if (const auto it = Predicates().find(name); it != Predicates().end()) {
    RETURN_IF_ERROR(Bind(name, arguments, {"value"}).status());
    if (name == "lower" || name == "upper") {
      RETURN_IF_ERROR(ChargeProduct(subject.weight(), 4));
    }
    return it->second(subject);
  }
  if (name == "odd" || name == "even") {
    RETURN_IF_ERROR(Bind(name, arguments, {"value"}).status());
    ASSIGN_OR_RETURN(const int64_t value, ToInteger(subject, "the value"));
    return (value % 2 != 0) == (name == "odd");
  }
  if (!HasTest(name)) {
    return absl::InvalidArgumentError(absl::StrCat("there is no test '", name, "'"));
  }
  ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"value", "other"}));
  if (bound[1] == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the test '", name, "' needs another value"));
  }
  if (name == "sameas") return subject.Same(*bound[1]);
  if (name == "divisibleby") {
    ASSIGN_OR_RETURN(const Value rest, Binary("%", subject, *bound[1]));
    return !rest.Truthy();
  }
  return CompareWith(Comparisons().at(name), subject, *bound[1]);
}

}  // namespace tandem::tokenizer::jinja
