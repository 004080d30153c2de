// The functions that every template can call.
#include <ctime>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/jinja/runtime.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer::jinja {
namespace {

using Result = absl::StatusOr<Value>;

constexpr int64_t kMaxRange = 100'000;  // the sandbox's

Result Range(Runtime& runtime, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("range", args, {"start", "stop", "step"}));
  if (bound[0] == nullptr) return absl::InvalidArgumentError("range() takes an integer");
  ASSIGN_OR_RETURN(int64_t start, ToInteger(*bound[0], "the argument of range()"));
  int64_t stop = start, step = 1;
  if (bound[1] == nullptr) {
    start = 0;
  } else {
    ASSIGN_OR_RETURN(stop, ToInteger(*bound[1], "the argument of range()"));
  }
  if (bound[2] != nullptr) {
    ASSIGN_OR_RETURN(step, ToInteger(*bound[2], "the argument of range()"));
  }
  if (step == 0) return absl::InvalidArgumentError("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) {
      return absl::InvalidArgumentError(
          absl::StrCat("Range too big. The sandbox blocks ranges larger than ", kMaxRange));
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return runtime.MakeList(std::move(items));
}

// dict(a=1) and namespace(a=1): a dictionary, or pairs, may come first.
absl::StatusOr<Dict> ReadDict(Runtime& runtime, absl::string_view name, Arguments& args) {
  if (args.positional.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "() takes at most one positional argument"));
  }
  Dict dict;
  if (!args.positional.empty() && args.positional[0].is_dict()) {
    dict = args.positional[0].dict();
  } else if (!args.positional.empty()) {
    ASSIGN_OR_RETURN(const auto pairs, runtime.Iterate(args.positional[0]));
    for (const Value& pair : pairs->items) {
      if (!pair.is_list() || pair.list().items.size() != 2) {
        return absl::InvalidArgumentError(absl::StrCat(name, "() takes a list of pairs"));
      }
      if (!dict.Set(pair.list().items[0], pair.list().items[1])) {
        return absl::InvalidArgumentError("a key cannot be hashed");
      }
    }
  }
  for (const auto& [key, value] : args.named) dict.Set(Value(key), value);
  return dict;
}

Result DictFunction(Runtime& runtime, Arguments& args) {
  ASSIGN_OR_RETURN(Dict dict, ReadDict(runtime, "dict", args));
  return runtime.MakeDict(std::move(dict));
}

Result NamespaceFunction(Runtime& runtime, Arguments& args) {
  ASSIGN_OR_RETURN(const Dict dict, ReadDict(runtime, "namespace", args));
  Namespace ns;
  for (const auto& [key, value] : dict.items()) ns.attributes.emplace_back(key.Str(), value);
  RETURN_IF_ERROR(runtime.Charge(128 + 64 * static_cast<int64_t>(ns.attributes.size())));
  return runtime.MakeNamespace(std::move(ns));
}

Result RaiseException(Runtime& runtime, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("raise_exception", args, {"message"}));
  if (bound[0] == nullptr) return absl::InvalidArgumentError("raise_exception()");
  ASSIGN_OR_RETURN(const std::string message, runtime.ToText(*bound[0]));
  return absl::InvalidArgumentError(message);
}

Result StrftimeNow(Runtime& runtime, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("strftime_now", args, {"format"}));
  ASSIGN_OR_RETURN(const std::string format,
                   ToString(bound[0] == nullptr ? Value() : *bound[0], "format"));
  if (format.empty()) return Value("");
  if (format.size() > 1024)
    return absl::InvalidArgumentError("a time format of more than 1024 bytes");
  const std::tm time = absl::ToTM(runtime.now(), absl::LocalTimeZone());
  std::string out(16384, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &time));
  RETURN_IF_ERROR(ValidateUtf8(out)) << "in a formatted time";
  return Value(std::move(out));
}

// joiner(", ") returns nothing on its first call.
Result Joiner(Runtime&, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("joiner", args, {"sep"}));
  // Text only: joiners of joiners could form an endless chain.
  ASSIGN_OR_RETURN(const std::string separator,
                   ToString(bound[0] == nullptr ? Value(", ") : *bound[0], "sep"));
  auto joiner = std::make_shared<Callable>();
  joiner->name = "joiner";
  const auto used = std::make_shared<bool>(false);
  joiner->call = [separator, used](Runtime&, Arguments&) -> Result {
    if (*used) return Value(separator);
    *used = true;
    return Value("");
  };
  return Value(std::shared_ptr<const Callable>(std::move(joiner)));
}

Value Function(std::string name, Result (*function)(Runtime&, Arguments&)) {
  auto callable = std::make_shared<Callable>();
  callable->name = std::move(name);
  callable->call = function;
  return Value(std::shared_ptr<const Callable>(std::move(callable)));
}

}  // namespace

std::vector<std::pair<std::string, Value>> GlobalFunctions() {
  return {{"range", Function("range", Range)},
          {"dict", Function("dict", DictFunction)},
          {"namespace", Function("namespace", NamespaceFunction)},
          {"raise_exception", Function("raise_exception", RaiseException)},
          {"strftime_now", Function("strftime_now", StrftimeNow)},
          {"joiner", Function("joiner", Joiner)}};
}

}  // namespace tandem::tokenizer::jinja
