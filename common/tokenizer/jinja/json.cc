// json.dumps() of a template's values.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/jinja/value.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer::jinja {
namespace {

void AppendString(absl::string_view text, bool ensure_ascii, std::string* out) {
  out->push_back('"');
  for (size_t i = 0; i < text.size();) {
    size_t length;
    const char32_t c = DecodeAt(text, i, &length);
    switch (c) {
      case '"':
        out->append("\\\"");
        break;
      case '\\':
        out->append("\\\\");
        break;
      case '\n':
        out->append("\\n");
        break;
      case '\r':
        out->append("\\r");
        break;
      case '\t':
        out->append("\\t");
        break;
      case '\b':
        out->append("\\b");
        break;
      case '\f':
        out->append("\\f");
        break;
      default:
        if (c < 0x20 || (ensure_ascii && c > 0x7E && c < 0x10000)) {
          absl::StrAppendFormat(out, "\\u%04x", static_cast<uint32_t>(c));
        } else if (ensure_ascii && c >= 0x10000) {
          const auto rest = static_cast<uint32_t>(c) - 0x10000;
          absl::StrAppendFormat(out, "\\u%04x\\u%04x", 0xD800 + (rest >> 10),
                                0xDC00 + (rest & 0x3FF));
        } else {
          out->append(text.data() + i, length);
        }
    }
    i += length;
  }
  out->push_back('"');
}

std::string NumberText(const Value& value) {
  if (value.is_bool()) return value.integer() != 0 ? "true" : "false";
  if (value.is_int()) return absl::StrCat(value.integer());
  const double v = value.number();
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v < 0 ? "-Infinity" : "Infinity";
  return FloatRepr(v);
}

void AppendLineBreak(const JsonStyle& style, int level, std::string* out) {
  if (!style.indent.has_value()) return;
  out->push_back('\n');
  for (int i = 0; i < level; ++i) out->append(*style.indent);
}

absl::Status AppendDict(const Dict& dict, const JsonStyle& style, int level, std::string* out) {
  std::vector<const std::pair<Value, Value>*> items;
  for (const auto& item : dict.items()) items.push_back(&item);
  if (style.sort_keys) {
    for (const auto* item : items) RETURN_IF_ERROR(Compare(item->first, items[0]->first).status());
    std::stable_sort(items.begin(), items.end(), [](const auto* a, const auto* b) {
      return Compare(a->first, b->first).value_or(0) < 0;
    });
  }
  out->push_back('{');
  bool first = true;
  for (const auto* item : items) {
    if (!first) out->append(style.item_separator);
    first = false;
    AppendLineBreak(style, level + 1, out);
    const Value& key = item->first;
    if (key.is_string()) {
      AppendString(key.string(), style.ensure_ascii, out);
    } else if (key.is_none()) {
      out->append("\"null\"");
    } else if (key.is_number()) {
      absl::StrAppend(out, "\"", NumberText(key), "\"");
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("keys must be str, int, float, bool or None, not ", key.TypeName()));
    }
    out->append(style.key_separator);
    RETURN_IF_ERROR(AppendJson(item->second, style, level + 1, out));
  }
  if (!items.empty()) AppendLineBreak(style, level, out);
  out->push_back('}');
  return absl::OkStatus();
}

}  // namespace

absl::Status AppendJson(const Value& value, const JsonStyle& style, int level, std::string* out) {
  if (value.is_none()) {
    out->append("null");
  } else if (value.is_number()) {
    out->append(NumberText(value));
  } else if (value.is_string()) {
    AppendString(value.string(), style.ensure_ascii, out);
  } else if (value.is_list()) {
    out->push_back('[');
    bool first = true;
    for (const Value& item : value.list().items) {
      if (!first) out->append(style.item_separator);
      first = false;
      AppendLineBreak(style, level + 1, out);
      RETURN_IF_ERROR(AppendJson(item, style, level + 1, out));
    }
    if (!first) AppendLineBreak(style, level, out);
    out->push_back(']');
  } else if (value.is_dict()) {
    return AppendDict(value.dict(), style, level, out);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("Object of type ", value.TypeName(), " is not JSON serializable"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::tokenizer::jinja
