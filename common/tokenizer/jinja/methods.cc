// The methods of strings, dictionaries, lists and loops that a template may call.
#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/jinja/runtime.h"
#include "common/tokenizer/jinja/text.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using StringMethod = Result (*)(Runtime&, const std::string& text, const std::string& name,
                                Arguments&);

Result StripMethod(Runtime&, const std::string& text, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"chars"}));
  const Side side = name == "lstrip" ? Side::kLeft : name == "rstrip" ? Side::kRight : Side::kBoth;
  if (bound[0] == nullptr || bound[0]->is_none()) return Value(Strip(text, side));
  ASSIGN_OR_RETURN(const std::string characters, ToString(*bound[0], "chars"));
  return Value(Strip(text, side, characters));
}

Result SplitMethod(Runtime& runtime, const std::string& text, const std::string& name,
                   Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"sep", "maxsplit"}));
  int64_t limit = -1;
  if (bound[1] != nullptr) {
    ASSIGN_OR_RETURN(limit, ToInteger(*bound[1], "maxsplit"));
  }
  RETURN_IF_ERROR(runtime.ChargeProduct(static_cast<int64_t>(text.size()), 4));
  std::vector<std::string> parts;
  if (bound[0] == nullptr || bound[0]->is_none()) {
    parts = SplitText(text, std::nullopt, limit, name == "rsplit");
  } else {
    ASSIGN_OR_RETURN(const std::string separator, ToString(*bound[0], "sep"));
    if (separator.empty()) return absl::InvalidArgumentError("empty separator");
    parts = SplitText(text, separator, limit, name == "rsplit");
  }
  return runtime.MakeList(std::vector<Value>(parts.begin(), parts.end()));
}

Result SplitLinesMethod(Runtime& runtime, const std::string& text, const std::string& name,
                        Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"keepends"}));
  RETURN_IF_ERROR(runtime.ChargeProduct(static_cast<int64_t>(text.size()), 4));
  const std::vector<std::string> lines =
      SplitLines(text, bound[0] != nullptr && bound[0]->Truthy());
  return runtime.MakeList(std::vector<Value>(lines.begin(), lines.end()));
}

// The part [start:end] of a text, in which a method searches.
struct Window {
  absl::string_view text;
  int64_t start;  // in code points
};

// Bounds count code points, from the end when negative. Nullopt when they hold nothing, not even an
// empty text.
absl::StatusOr<std::optional<Window>> WindowOf(absl::string_view text, const Value* start,
                                               const Value* end) {
  if (start == nullptr) return std::optional(Window{text, 0});
  const std::vector<size_t> offsets = CodePointOffsets(text);
  const auto length = static_cast<int64_t>(offsets.size()) - 1;
  int64_t bounds[2] = {0, length};
  const Value* const given[2] = {start, end};
  for (size_t i = 0; i < 2; ++i) {
    if (given[i] == nullptr || given[i]->is_none()) continue;
    ASSIGN_OR_RETURN(bounds[i], ToInteger(*given[i], i == 0 ? "start" : "end"));
    if (bounds[i] < 0) bounds[i] = std::max<int64_t>(bounds[i] + length, 0);
  }
  bounds[1] = std::min(bounds[1], length);
  if (bounds[0] > bounds[1]) return std::optional<Window>();
  const size_t from = offsets[static_cast<size_t>(bounds[0])];
  const size_t to = offsets[static_cast<size_t>(bounds[1])];
  return std::optional(Window{text.substr(from, to - from), bounds[0]});
}

// startswith and endswith, which also take a tuple.
Result AffixMethod(Runtime& runtime, const std::string& text, const std::string& name,
                   Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"affix", "start", "end"}));
  if (bound[0] == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(name, "() takes an argument"));
  }
  if (bound[1] != nullptr) {
    RETURN_IF_ERROR(runtime.Charge(static_cast<int64_t>(text.size())));
  }
  ASSIGN_OR_RETURN(const std::optional<Window> window, WindowOf(text, bound[1], bound[2]));
  std::vector<Value> affixes{*bound[0]};
  if (bound[0]->is_list() && bound[0]->list().is_tuple) affixes = bound[0]->list().items;
  for (const Value& affix : affixes) {
    ASSIGN_OR_RETURN(const std::string wanted,
                     ToString(affix, absl::StrCat("the argument of ", name, "()")));
    if (!window.has_value()) continue;
    if (name == "startswith" ? absl::StartsWith(window->text, wanted)
                             : absl::EndsWith(window->text, wanted)) {
      return Value(true);
    }
  }
  return Value(false);
}

Result RemoveAffixMethod(Runtime&, const std::string& text, const std::string& name,
                         Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"affix"}));
  ASSIGN_OR_RETURN(const std::string affix,
                   ToString(bound[0] == nullptr ? Value() : *bound[0], "the argument"));
  if (name == "removeprefix" && absl::StartsWith(text, affix))
    return Value(text.substr(affix.size()));
  if (name == "removesuffix" && absl::EndsWith(text, affix)) {
    return Value(text.substr(0, text.size() - affix.size()));
  }
  return Value(text);
}

Result CaseMethod(Runtime& runtime, const std::string& text, const std::string& name,
                  Arguments& args) {
  RETURN_IF_ERROR(Bind(name, args, {}).status());
  RETURN_IF_ERROR(runtime.Charge(static_cast<int64_t>(text.size())));
  if (name == "upper") return Value(Upper(text));
  if (name == "lower" || name == "casefold") return Value(Lower(text));
  if (name == "capitalize") return Value(Capitalize(text));
  if (name == "swapcase") {
    std::string out;
    for (size_t i = 0, length; i < text.size(); i += length) {
      const bool upper = GeneralCategory(DecodeAt(text, i, &length)) == kLu;
      const std::string character = text.substr(i, length);
      out.append(upper ? Lower(character) : Upper(character));
    }
    return Value(std::move(out));
  }
  return Value(Title(text));
}

// find, rfind, index, rindex, count: positions in code points.
Result FindMethod(Runtime& runtime, const std::string& text, const std::string& name,
                  Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"sub", "start", "end"}));
  ASSIGN_OR_RETURN(const std::string wanted,
                   ToString(bound[0] == nullptr ? Value() : *bound[0], "the argument"));
  RETURN_IF_ERROR(runtime.Charge(static_cast<int64_t>(text.size())));
  ASSIGN_OR_RETURN(const std::optional<Window> window, WindowOf(text, bound[1], bound[2]));
  const absl::string_view part = window.has_value() ? window->text : absl::string_view();
  if (name == "count") {
    if (!window.has_value()) return Value(0);
    if (wanted.empty()) return Value(static_cast<int64_t>(CountCodePoints(part)) + 1);
    int64_t count = 0;
    for (size_t at = part.find(wanted); at != absl::string_view::npos;
         at = part.find(wanted, at + wanted.size())) {
      ++count;
    }
    return Value(count);
  }
  const size_t at = !window.has_value() ? absl::string_view::npos
                    : name[0] == 'r'    ? part.rfind(wanted)
                                        : part.find(wanted);
  if (at == absl::string_view::npos) {
    if (absl::EndsWith(name, "index")) return absl::InvalidArgumentError("substring not found");
    return Value(-1);
  }
  return Value(window->start + static_cast<int64_t>(CountCodePoints(part.substr(0, at))));
}

Result ReplaceMethod(Runtime& runtime, const std::string& text, const std::string& name,
                     Arguments& args) {
  args.positional.insert(args.positional.begin(), Value(text));
  return runtime.CallFilter("replace", args);
}

Result JoinMethod(Runtime& runtime, const std::string& text, const std::string& name,
                  Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"iterable"}));
  if (bound[0] == nullptr) return absl::InvalidArgumentError("join() takes an argument");
  ASSIGN_OR_RETURN(const auto items, runtime.Iterate(*bound[0]));
  for (const Value& item : items->items)
    RETURN_IF_ERROR(ToString(item, "the argument of join()").status());
  Arguments join;
  join.positional = {Value(items), Value(text)};
  return runtime.CallFilter("join", join);
}

// isdigit and its variants: true if the text is not empty and all its characters qualify.
Result IsMethod(Runtime& runtime, const std::string& text, const std::string& name,
                Arguments& args) {
  RETURN_IF_ERROR(Bind(name, args, {}).status());
  RETURN_IF_ERROR(runtime.Charge(static_cast<int64_t>(text.size())));
  bool all = !text.empty(), any_cased = false;
  for (size_t i = 0, length; i < text.size(); i += length) {
    const char32_t c = DecodeAt(text, i, &length);
    const Category category = GeneralCategory(c);
    const bool alpha = category >= kLu && category <= kLo;
    if (name == "isalpha") all &= alpha;
    if (name == "isdigit" || name == "isdecimal") all &= category == kNd;
    if (name == "isnumeric") all &= IsNumeric(c);
    if (name == "isalnum") all &= alpha || IsNumeric(c);
    if (name == "isspace") all &= IsPythonSpace(c);
    if (name == "isascii") all &= c < 0x80;
    if (name == "islower") all &= category != kLu && category != kLt;
    if (name == "isupper") all &= category != kLl && category != kLt;
    any_cased |= category == kLu || category == kLl || category == kLt;
  }
  if (name == "islower" || name == "isupper") return Value(all && any_cased);
  return Value(all || (name == "isascii" && text.empty()));
}

// ljust, rjust, center, zfill.
Result PadMethod(Runtime& runtime, const std::string& text, const std::string& name,
                 Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"width", "fillchar"}));
  if (bound[0] == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(name, "() takes a width"));
  ASSIGN_OR_RETURN(const int64_t width, ToInteger(*bound[0], "width"));
  std::string fill = name == "zfill" ? "0" : " ";
  if (bound[1] != nullptr) {
    ASSIGN_OR_RETURN(fill, ToString(*bound[1], "fillchar"));
  }
  if (CountCodePoints(fill) != 1) {
    return absl::InvalidArgumentError("the fill character must be exactly one character long");
  }
  const auto length = static_cast<int64_t>(CountCodePoints(text));
  if (width <= length) return Value(text);
  const int64_t missing = width - length;
  RETURN_IF_ERROR(runtime.ChargeProduct(missing, static_cast<int64_t>(fill.size())));
  int64_t left = 0;
  if (name == "rjust" || name == "zfill") left = missing;
  if (name == "center") left = missing / 2 + (missing & width & 1);
  std::string out;
  const size_t sign =
      name == "zfill" && !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  out.append(text, 0, sign);
  for (int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(text, sign);
  for (int64_t i = left; i < missing; ++i) out.append(fill);
  return Value(std::move(out));
}

Result PartitionMethod(Runtime& runtime, const std::string& text, const std::string& name,
                       Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"sep"}));
  ASSIGN_OR_RETURN(const std::string separator,
                   ToString(bound[0] == nullptr ? Value() : *bound[0], "sep"));
  if (separator.empty()) return absl::InvalidArgumentError("empty separator");
  const size_t at = name == "partition" ? text.find(separator) : text.rfind(separator);
  std::vector<Value> parts;
  if (at == std::string::npos) {
    parts =
        name == "partition" ? std::vector<Value>{text, "", ""} : std::vector<Value>{"", "", text};
  } else {
    parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  }
  return runtime.MakeList(std::move(parts), true);
}

// str.format() with {}, {0} and {name}; no conversions and format specifications.
Result FormatMethod(Runtime& runtime, const std::string& text, const std::string& name,
                    Arguments& args) {
  std::string out;
  size_t automatic = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c) {
      out.push_back(c);
      ++i;
      continue;
    }
    if (c != '{') {
      out.push_back(c);
      continue;
    }
    const size_t end = text.find('}', i);
    if (end == std::string::npos) return absl::InvalidArgumentError("expected '}' in a format");
    const std::string field = text.substr(i + 1, end - i - 1);
    i = end;
    const bool is_number =
        !field.empty() && std::all_of(field.begin(), field.end(), absl::ascii_isdigit);
    const Value* value = nullptr;
    if (field.empty() || is_number) {
      const size_t position = field.empty()      ? automatic++
                              : field.size() > 6 ? SIZE_MAX
                                                 : std::stoul(field);
      if (position < args.positional.size()) value = &args.positional[position];
    } else {
      for (const auto& [key, named] : args.named) {
        if (key == field) value = &named;
      }
    }
    if (value == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("format() has no value for '{", field, "}'"));
    }
    ASSIGN_OR_RETURN(const std::string piece, runtime.ToText(*value));
    out.append(piece);
  }
  return Value(std::move(out));
}

const absl::flat_hash_map<std::string, StringMethod>& StringMethods() {
  static const auto* const methods = new absl::flat_hash_map<std::string, StringMethod>{
      {"strip", StripMethod},
      {"lstrip", StripMethod},
      {"rstrip", StripMethod},
      {"split", SplitMethod},
      {"rsplit", SplitMethod},
      {"splitlines", SplitLinesMethod},
      {"startswith", AffixMethod},
      {"endswith", AffixMethod},
      {"removeprefix", RemoveAffixMethod},
      {"removesuffix", RemoveAffixMethod},
      {"upper", CaseMethod},
      {"lower", CaseMethod},
      {"casefold", CaseMethod},
      {"capitalize", CaseMethod},
      {"title", CaseMethod},
      {"swapcase", CaseMethod},
      {"find", FindMethod},
      {"rfind", FindMethod},
      {"index", FindMethod},
      {"rindex", FindMethod},
      {"count", FindMethod},
      {"replace", ReplaceMethod},
      {"join", JoinMethod},
      {"isalpha", IsMethod},
      {"isdigit", IsMethod},
      {"isdecimal", IsMethod},
      {"isnumeric", IsMethod},
      {"isalnum", IsMethod},
      {"isspace", IsMethod},
      {"isascii", IsMethod},
      {"islower", IsMethod},
      {"isupper", IsMethod},
      {"ljust", PadMethod},
      {"rjust", PadMethod},
      {"center", PadMethod},
      {"zfill", PadMethod},
      {"partition", PartitionMethod},
      {"rpartition", PartitionMethod},
      {"format", FormatMethod},
  };
  return *methods;
}

Result CallDictMethod(Runtime& runtime, const Value& object, const std::string& name,
                      Arguments& args) {
  const Dict& dict = object.dict();
  if (name == "get") {
    ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"key", "default"}));
    if (bound[0] == nullptr) return absl::InvalidArgumentError("get() takes a key");
    if (const Value* value = dict.Find(*bound[0])) return *value;
    return bound[1] == nullptr ? Value() : *bound[1];
  }
  RETURN_IF_ERROR(Bind(name, args, {}).status());
  if (name == "copy") return object;
  std::vector<Value> out;
  for (const auto& [key, value] : dict.items()) {
    if (name == "keys") {
      out.push_back(key);
    } else if (name == "values") {
      out.push_back(value);
    } else {
      ASSIGN_OR_RETURN(Value pair, runtime.MakeList({key, value}, true));
      out.push_back(std::move(pair));
    }
  }
  return runtime.MakeList(std::move(out));
}

Result CallListMethod(Runtime& runtime, const Value& object, const std::string& name,
                      Arguments& args) {
  if (name == "copy") return object;
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"value"}));
  if (bound[0] == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(name, "() takes a value"));
  const List& list = object.list();
  RETURN_IF_ERROR(runtime.Charge(list.weight / 8));
  int64_t count = 0;
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (!list.items[i].Equals(*bound[0])) continue;
    if (name == "index") return Value(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") return absl::InvalidArgumentError("the value is not in the list");
  return Value(count);
}

Result CallLoopMethod(Runtime& runtime, const Value& object, const std::string& name,
                      Arguments& args) {
  Loop& loop = object.loop();
  if (name == "cycle") {
    if (args.positional.empty()) return absl::InvalidArgumentError("no items for cycling given");
    return args.positional[loop.index % args.positional.size()];
  }
  ASSIGN_OR_RETURN(const Value now, runtime.MakeList(args.positional, true));
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(now));
  const bool changed = loop.changed != text;
  loop.changed = text;
  return Value(changed);
}

}  // namespace

bool HasMethod(const Value& object, absl::string_view name) {
  if (object.is_string()) return StringMethods().contains(name);
  if (object.is_dict()) {
    return name == "get" || name == "items" || name == "keys" || name == "values" || name == "copy";
  }
  if (object.is_list()) return name == "index" || name == "count" || name == "copy";
  if (object.is_loop()) return name == "cycle" || name == "changed";
  return false;
}

absl::StatusOr<Value> Runtime::CallMethod(const Value& object, const std::string& name,
                                          Arguments& arguments) {
  if (object.is_string()) {
    RETURN_IF_ERROR(Charge(static_cast<int64_t>(object.string().size())));
    return StringMethods().at(name)(*this, object.string(), name, arguments);
  }
  if (object.is_dict()) return CallDictMethod(*this, object, name, arguments);
  if (object.is_list()) return CallListMethod(*this, object, name, arguments);
  return CallLoopMethod(*this, object, name, arguments);
}

}  // namespace tandem::tokenizer::jinja
