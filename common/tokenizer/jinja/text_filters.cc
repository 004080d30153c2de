// Filters of texts and numbers.
#include <cmath>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/text.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// The arguments after the subject.
Arguments Behind(const Arguments& args) {
  Arguments out;
  out.positional.assign(args.positional.begin() + 1, args.positional.end());
  out.named = args.named;
  return out;
}

Result TextMethod(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(args.positional[0]));
  Arguments rest = Behind(args);
  return runtime.CallMethod(Value(text), name, rest);
}

// Unlike str.title(), starts words behind spaces, hyphens and opening brackets only.
Result TitleFilter(Runtime& runtime, const std::string& name, Arguments& args) {
  RETURN_IF_ERROR(Bind(name, args, {"s"}).status());
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(args.positional[0]));
  RETURN_IF_ERROR(runtime.Charge(static_cast<int64_t>(text.size())));
  std::string out;
  bool starts_word = true;
  for (size_t i = 0, length; i < text.size(); i += length) {
    const char32_t c = DecodeAt(text, i, &length);
    const absl::string_view character = absl::string_view(text).substr(i, length);
    out.append(starts_word ? Upper(character) : Lower(character));
    starts_word = IsPythonSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  }
  return Value(std::move(out));
}

Result Trim(Runtime& runtime, const std::string&, Arguments& args) {
  return TextMethod(runtime, "strip", args);
}

Result Center(Runtime& runtime, const std::string&, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("center", args, {"value", "width"}));
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(*bound[0]));
  Arguments rest;
  rest.positional.push_back(bound[1] == nullptr ? Value(80) : *bound[1]);
  return runtime.CallMethod(Value(text), "center", rest);
}

Result Replace(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"s", "old", "new", "count"}));
  if (bound[1] == nullptr || bound[2] == nullptr) {
    return absl::InvalidArgumentError("replace() takes the old and the new string");
  }
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(*bound[0]));
  ASSIGN_OR_RETURN(const std::string old_text, runtime.ToText(*bound[1]));
  ASSIGN_OR_RETURN(const std::string new_text, runtime.ToText(*bound[2]));
  int64_t limit = -1;
  if (bound[3] != nullptr && !bound[3]->is_none()) {
    ASSIGN_OR_RETURN(limit, ToInteger(*bound[3], "count"));
  }
  std::string out;
  size_t done = 0;
  size_t search = 0;
  for (int64_t count = 0; limit < 0 || count < limit; ++count) {
    const size_t at = text.find(old_text, search);
    if (at == std::string::npos) break;
    RETURN_IF_ERROR(runtime.Charge(static_cast<int64_t>(new_text.size()) + 1));
    out.append(text, done, at - done);
    out.append(new_text);
    done = at + old_text.size();
    search = done;
    if (old_text.empty()) {  // between all characters
      if (at >= text.size()) break;
      size_t length;
      DecodeAt(text, at, &length);
      search = at + length;
    }
  }
  out.append(text, done);
  return Value(std::move(out));
}

Result String(Runtime& runtime, const std::string& name, Arguments& args) {
  RETURN_IF_ERROR(Bind(name, args, {"value"}).status());
  ASSIGN_OR_RETURN(std::string text, runtime.ToText(args.positional[0]));
  return Value(std::move(text));
}

Result Escape(Runtime& runtime, const std::string& name, Arguments& args) {
  RETURN_IF_ERROR(Bind(name, args, {"value"}).status());
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(args.positional[0]));
  RETURN_IF_ERROR(runtime.ChargeProduct(static_cast<int64_t>(text.size()), 5));
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out.append("&amp;");
        break;
      case '<':
        out.append("&lt;");
        break;
      case '>':
        out.append("&gt;");
        break;
      case '\'':
        out.append("&#39;");
        break;
      case '"':
        out.append("&#34;");
        break;
      default:
        out.push_back(c);
    }
  }
  return Value(std::move(out));
}

Result Indent(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"s", "width", "first", "blank"}));
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(*bound[0]));
  std::string indent(4, ' ');
  if (bound[1] != nullptr && bound[1]->is_string()) {
    indent = bound[1]->string();
  } else if (bound[1] != nullptr) {
    ASSIGN_OR_RETURN(int64_t width, ToInteger(*bound[1], "width"));
    width = std::max<int64_t>(width, 0);
    RETURN_IF_ERROR(runtime.Charge(width));
    indent = std::string(static_cast<size_t>(width), ' ');
  }
  const bool first = bound[2] != nullptr && bound[2]->Truthy();
  const bool blank = bound[3] != nullptr && bound[3]->Truthy();
  // A trailing newline ends an empty last line.
  std::vector<std::string> lines = SplitLines(text + "\n", false);
  RETURN_IF_ERROR(runtime.ChargeProduct(static_cast<int64_t>(lines.size()),
                                        static_cast<int64_t>(indent.size()) + 1));
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.push_back('\n');
    if (i == 0 ? first : (blank || !lines[i].empty())) out.append(indent);
    out.append(lines[i]);
  }
  return Value(std::move(out));
}

Result Format(Runtime& runtime, const std::string&, Arguments& args) {
  ASSIGN_OR_RETURN(const std::string format, runtime.ToText(args.positional[0]));
  if (!args.named.empty()) {
    return absl::UnimplementedError("the filter 'format' takes no named values");
  }
  ASSIGN_OR_RETURN(std::string text, FormatPercent(runtime, format,
                                                   std::vector<Value>(args.positional.begin() + 1,
                                                                      args.positional.end())));
  return Value(std::move(text));
}

Result ToJson(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind(name, args, {"x", "ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound[1] != nullptr && bound[1]->Truthy();
  style.sort_keys = bound[4] != nullptr && bound[4]->Truthy();
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    if (bound[2]->is_string()) {
      style.indent = bound[2]->string();
    } else {
      ASSIGN_OR_RETURN(const int64_t width, ToInteger(*bound[2], "indent"));
      if (width > 1000) return absl::InvalidArgumentError("indent is more than 1000");
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (bound[3] != nullptr && !bound[3]->is_none()) {
    if (!bound[3]->is_list() || bound[3]->list().items.size() != 2) {
      return absl::InvalidArgumentError("separators must be a pair of strings");
    }
    ASSIGN_OR_RETURN(style.item_separator, ToString(bound[3]->list().items[0], "a separator"));
    ASSIGN_OR_RETURN(style.key_separator, ToString(bound[3]->list().items[1], "a separator"));
  }
  const auto level = static_cast<int64_t>(style.indent.has_value() ? style.indent->size() : 0);
  RETURN_IF_ERROR(runtime.ChargeProduct(
      bound[0]->weight(),
      1 + bound[0]->depth() * level / 4 + static_cast<int64_t>(style.item_separator.size()) / 4));
  std::string out;
  RETURN_IF_ERROR(AppendJson(*bound[0], style, 0, &out));
  return Value(std::move(out));
}

Result WordCount(Runtime& runtime, const std::string& name, Arguments& args) {
  RETURN_IF_ERROR(Bind(name, args, {"s"}).status());
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(args.positional[0]));
  int64_t count = 0;
  bool inside = false;
  for (size_t i = 0, length; i < text.size(); i += length) {
    const bool word = IsWord(DecodeAt(text, i, &length));
    if (word && !inside) ++count;
    inside = word;
  }
  return Value(count);
}

Result Truncate(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind(name, args, {"s", "length", "killwords", "end", "leeway"}));
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(*bound[0]));
  int64_t length = 255, leeway = 5;
  std::string end = "...";
  if (bound[1] != nullptr) {
    ASSIGN_OR_RETURN(length, ToInteger(*bound[1], "length"));
  }
  if (bound[3] != nullptr) {
    ASSIGN_OR_RETURN(end, ToString(*bound[3], "end"));
  }
  if (bound[4] != nullptr && !bound[4]->is_none()) {
    ASSIGN_OR_RETURN(leeway, ToInteger(*bound[4], "leeway"));
  }
  const std::vector<size_t> offsets = CodePointOffsets(text);
  const auto size = static_cast<int64_t>(offsets.size()) - 1;
  const auto end_size = static_cast<int64_t>(CountCodePoints(end));
  if (length < end_size) {
    return absl::InvalidArgumentError("truncate() to less than the length of `end`");
  }
  if (leeway < 0) return absl::InvalidArgumentError("truncate() with a leeway of less than 0");
  if (size - leeway <= length) return Value(text);
  const int64_t kept = length - end_size;  // < size, because leeway >= 0
  std::string out = text.substr(0, offsets[static_cast<size_t>(kept)]);
  if (bound[2] == nullptr || !bound[2]->Truthy()) {
    const size_t space = out.rfind(' ');
    if (space != std::string::npos) out.resize(space);
  }
  return Value(out + end);
}

Result Int(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"value", "default", "base"}));
  const Value otherwise = bound[1] == nullptr ? Value(0) : *bound[1];
  int64_t base = 10;
  if (bound[2] != nullptr) {
    ASSIGN_OR_RETURN(base, ToInteger(*bound[2], "base"));
  }
  const Value& value = *bound[0];
  if (value.is_integral()) return Value(value.integer());
  if (value.is_float()) {
    if (!(std::abs(value.number()) < 9.2e18)) return otherwise;
    return Value(static_cast<int64_t>(value.number()));
  }
  if (!value.is_string()) return otherwise;
  const std::string text(Strip(value.string(), Side::kBoth));
  char* end = nullptr;
  errno = 0;
  if (!text.empty() && (base == 0 || (base >= 2 && base <= 36))) {
    const long long number = std::strtoll(text.c_str(), &end, static_cast<int>(base));
    if (*end == '\0' && errno == 0) return Value(static_cast<int64_t>(number));
  }
  double number;
  if (absl::SimpleAtod(text, &number) && std::abs(number) < 9.2e18) {
    return Value(static_cast<int64_t>(number));
  }
  return otherwise;
}

Result Float(Runtime&, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"value", "default"}));
  const Value& value = *bound[0];
  if (value.is_number()) return Value(value.number());
  double number;
  if (value.is_string() && absl::SimpleAtod(Strip(value.string(), Side::kBoth), &number)) {
    return Value(number);
  }
  return bound[1] == nullptr ? Value(0.0) : *bound[1];
}

Result Abs(Runtime& runtime, const std::string& name, Arguments& args) {
  RETURN_IF_ERROR(Bind(name, args, {"x"}).status());
  const Value& value = args.positional[0];
  if (value.is_float()) return Value(std::abs(value.number()));
  ASSIGN_OR_RETURN(const int64_t number, ToInteger(value, "the argument of abs()"));
  if (number >= 0) return Value(number);
  return runtime.Binary("-", Value(0), Value(number));
}

Result Round(Runtime&, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"value", "precision", "method"}));
  if (!bound[0]->is_number()) {
    return absl::InvalidArgumentError(
        absl::StrCat("round() takes a number, not '", bound[0]->TypeName(), "'"));
  }
  int64_t precision = 0;
  std::string method = "common";
  if (bound[1] != nullptr) {
    ASSIGN_OR_RETURN(precision, ToInteger(*bound[1], "precision"));
  }
  if (bound[2] != nullptr) {
    ASSIGN_OR_RETURN(method, ToString(*bound[2], "method"));
  }
  if (precision < -300 || precision > 300)
    return absl::InvalidArgumentError("precision is too large");
  const double value = bound[0]->number();
  if (method == "common") {
    if (bound[0]->is_integral() && precision >= 0) return *bound[0];
    // Correctly rounded decimal digits, half to even, as Python's round().
    if (precision >= 0) {
      char text[700];
      std::snprintf(text, sizeof(text), "%.*f", static_cast<int>(precision), value);
      return Value(std::strtod(text, nullptr));
    }
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return Value(std::nearbyint(value / scale) * scale);
  }
  if (method != "ceil" && method != "floor") {
    return absl::InvalidArgumentError("method must be common, ceil or floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  return Value((method == "ceil" ? std::ceil(value * scale) : std::floor(value * scale)) / scale);
}

}  // namespace

FilterTable TextFilters() {
  return {{"upper", TextMethod},  {"lower", TextMethod},   {"capitalize", TextMethod},
          {"title", TitleFilter}, {"trim", Trim},          {"center", Center},
          {"replace", Replace},   {"string", String},      {"safe", String},
          {"escape", Escape},     {"e", Escape},           {"forceescape", Escape},
          {"indent", Indent},     {"format", Format},      {"tojson", ToJson},
          {"truncate", Truncate}, {"wordcount", WordCount}};
}

FilterTable NumberFilters() {
  return {{"int", Int}, {"float", Float}, {"abs", Abs}, {"round", Round}};
}

}  // namespace tandem::tokenizer::jinja
