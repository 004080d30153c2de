// State and operations that filters, tests, methods and functions share while a template runs.
#ifndef TANDEM_COMMON_TOKENIZER_JINJA_RUNTIME_H_
#define TANDEM_COMMON_TOKENIZER_JINJA_RUNTIME_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/tokenizer/jinja/template.h"
#include "common/tokenizer/jinja/value.h"

namespace tandem::tokenizer::jinja {

// The budget of one rendering, and the operations that consume it. Single-threaded; lives as long
// as the rendering.
class Runtime {
 public:
  Runtime(const Limits& limits, absl::Time now) : limits_(limits), now_(now) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Limits& limits() const { return limits_; }
  absl::Time now() const { return now_; }

  // ResourceExhausted when the template exceeds its limits. Call Charge() before making something
  // of that size.
  absl::Status Step();
  absl::Status Charge(int64_t bytes);
  absl::Status ChargeProduct(int64_t count, int64_t bytes_each);

  // obj.name and obj[key]: undefined if absent, an error on an undefined object.
  absl::StatusOr<Value> GetAttribute(const Value& object, const std::string& name);
  absl::StatusOr<Value> GetItem(const Value& object, const Value& key);
  absl::StatusOr<Value> GetSlice(const Value& object, const Value& start, const Value& stop,
                                 const Value& step);
  // Elements of a list, keys of a dictionary, characters of a string; none of an undefined value.
  absl::StatusOr<std::shared_ptr<const List>> Iterate(const Value& value);
  absl::StatusOr<int64_t> Length(const Value& value);

  absl::StatusOr<Value> Binary(absl::string_view op, const Value& a, const Value& b);
  absl::StatusOr<bool> CompareWith(absl::string_view op, const Value& a, const Value& b);
  absl::StatusOr<bool> Contains(const Value& container, const Value& item);
  // str(), charged to the budget.
  absl::StatusOr<std::string> ToText(const Value& value);
  absl::StatusOr<Value> MakeList(std::vector<Value> items, bool is_tuple = false);
  absl::StatusOr<Value> MakeDict(Dict dict);
  Value MakeNamespace(Namespace ns);

  absl::StatusOr<Value> Call(const Value& callee, Arguments& arguments);
  absl::StatusOr<Value> CallMethod(const Value& object, const std::string& name,
                                   Arguments& arguments);
  // The subject is the first positional argument.
  absl::StatusOr<Value> CallFilter(const std::string& name, Arguments& arguments);
  absl::StatusOr<bool> CallTest(const std::string& name, Arguments& arguments);

 private:
  const Limits limits_;
  const absl::Time now_;
  int64_t steps_ = 0;
  int64_t work_ = 0;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// "printf style" % formatting.
absl::StatusOr<std::string> FormatPercent(Runtime& runtime, const std::string& format,
                                          const std::vector<Value>& values);

bool HasMethod(const Value& object, absl::string_view name);
bool HasFilter(absl::string_view name);
bool HasTest(absl::string_view name);

// The functions every template can call: range, dict, namespace, raise_exception, ...
std::vector<std::pair<std::string, Value>> GlobalFunctions();

// Puts the arguments of a call into the order of `names`; absent ones are null pointers. The
// pointers live as long as `arguments`.
absl::StatusOr<std::vector<const Value*>> Bind(absl::string_view function,
                                               const Arguments& arguments,
                                               std::initializer_list<absl::string_view> names);
absl::StatusOr<int64_t> ToInteger(const Value& value, absl::string_view what);
absl::StatusOr<std::string> ToString(const Value& value, absl::string_view what);

}  // namespace tandem::tokenizer::jinja

#endif  // TANDEM_COMMON_TOKENIZER_JINJA_RUNTIME_H_
