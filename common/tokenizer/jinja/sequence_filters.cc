// Filters of lists and dictionaries.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/text.h"

namespace tandem::tokenizer::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// "a.b.0" of an item.
Result Attribute(Runtime& runtime, Value item, const Value& path) {
  if (path.is_integral()) return runtime.GetItem(item, path);
  ASSIGN_OR_RETURN(const std::string text, ToString(path, "attribute"));
  for (absl::string_view part : absl::StrSplit(text, '.')) {
    int64_t index;
    const Value key = absl::SimpleAtoi(part, &index) ? Value(index) : Value(part);
    ASSIGN_OR_RETURN(item, runtime.GetItem(item, key));
  }
  return item;
}

// Texts compare case-insensitively by default.
Value SortKey(const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? Value(Lower(value.string())) : value;
}

Result Default(Runtime&, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"value", "default_value", "boolean"}));
  const bool replaced = bound[0]->is_undefined() ||
                        (bound[2] != nullptr && bound[2]->Truthy() && !bound[0]->Truthy());
  if (!replaced) return *bound[0];
  return bound[1] == nullptr ? Value("") : *bound[1];
}

Result LengthFilter(Runtime& runtime, const std::string& name, Arguments& args) {
  RETURN_IF_ERROR(Bind(name, args, {"value"}).status());
  ASSIGN_OR_RETURN(const int64_t length, runtime.Length(args.positional[0]));
  return Value(length);
}

Result Join(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"value", "d", "attribute"}));
  ASSIGN_OR_RETURN(const auto items, runtime.Iterate(*bound[0]));
  std::string separator;
  if (bound[1] != nullptr) {
    ASSIGN_OR_RETURN(separator, runtime.ToText(*bound[1]));
  }
  std::string out;
  bool first = true;
  for (Value item : items->items) {
    if (bound[2] != nullptr && !bound[2]->is_none()) {
      ASSIGN_OR_RETURN(item, Attribute(runtime, item, *bound[2]));
    }
    ASSIGN_OR_RETURN(const std::string text, runtime.ToText(item));
    if (!first) {
      RETURN_IF_ERROR(runtime.Charge(static_cast<int64_t>(separator.size())));
      out.append(separator);
    }
    first = false;
    out.append(text);
  }
  return Value(std::move(out));
}

Result FirstOrLast(Runtime& runtime, const std::string& name, Arguments& args) {
  RETURN_IF_ERROR(Bind(name, args, {"seq"}).status());
  ASSIGN_OR_RETURN(const auto items, runtime.Iterate(args.positional[0]));
  if (items->items.empty()) {
    return Value::MakeUndefined(absl::StrCat("no ", name, " item, sequence was empty"));
  }
  return name == "first" ? items->items.front() : items->items.back();
}

Result ListFilter(Runtime& runtime, const std::string& name, Arguments& args) {
  RETURN_IF_ERROR(Bind(name, args, {"value"}).status());
  ASSIGN_OR_RETURN(const auto items, runtime.Iterate(args.positional[0]));
  return runtime.MakeList(items->items);
}

Result Reverse(Runtime& runtime, const std::string& name, Arguments& args) {
  RETURN_IF_ERROR(Bind(name, args, {"value"}).status());
  ASSIGN_OR_RETURN(const auto items, runtime.Iterate(args.positional[0]));
  std::vector<Value> reversed(items->items.rbegin(), items->items.rend());
  if (!args.positional[0].is_string()) return runtime.MakeList(std::move(reversed));
  std::string out;
  for (const Value& character : reversed) out.append(character.string());
  return Value(std::move(out));
}

Result Items(Runtime& runtime, const std::string& name, Arguments& args) {
  RETURN_IF_ERROR(Bind(name, args, {"value"}).status());
  const Value& value = args.positional[0];
  if (value.is_undefined()) return runtime.MakeList({});
  if (!value.is_dict())
    return absl::InvalidArgumentError("Can only get item pairs from a mapping.");
  Arguments none;
  return runtime.CallMethod(value, "items", none);
}

Result AttrFilter(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"obj", "name"}));
  ASSIGN_OR_RETURN(const std::string attribute,
                   ToString(bound[1] == nullptr ? Value() : *bound[1], "name"));
  // Attributes only, never items.
  if (bound[0]->is_dict() && !HasMethod(*bound[0], attribute)) {
    return Value::MakeUndefined(absl::StrCat("'dict object' has no attribute '", attribute, "'"));
  }
  return runtime.GetAttribute(*bound[0], attribute);
}

struct Sorted {
  Value key;
  Value item;
};

absl::Status SortBy(Runtime& runtime, bool reverse, std::vector<Sorted>* items) {
  absl::Status status;
  int64_t weight = 1;
  for (const Sorted& entry : *items) {
    if (entry.key.is_undefined()) return absl::InvalidArgumentError(entry.key.undefined_what());
    weight += entry.key.weight();
    // Checks that everything compares with the first item, hence with everything; std::sort needs
    // an order.
    RETURN_IF_ERROR(Compare(items->front().key, entry.key).status());
  }
  RETURN_IF_ERROR(runtime.ChargeProduct(weight, 20));
  std::stable_sort(items->begin(), items->end(), [&](const Sorted& a, const Sorted& b) {
    const absl::StatusOr<int> order = reverse ? Compare(b.key, a.key) : Compare(a.key, b.key);
    if (!order.ok()) status = order.status();
    return order.value_or(0) < 0;
  });
  return status;
}

Result Sort(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind(name, args, {"value", "reverse", "case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const auto items, runtime.Iterate(*bound[0]));
  const bool case_sensitive = bound[2] != nullptr && bound[2]->Truthy();
  std::vector<Sorted> entries;
  for (const Value& item : items->items) {
    Value key = item;
    if (bound[3] != nullptr && !bound[3]->is_none()) {
      std::vector<Value> parts;
      if (bound[3]->is_string()) {
        for (absl::string_view path : absl::StrSplit(bound[3]->string(), ',')) {
          ASSIGN_OR_RETURN(const Value part, Attribute(runtime, item, Value(path)));
          parts.push_back(SortKey(part, case_sensitive));
        }
      } else {
        ASSIGN_OR_RETURN(const Value part, Attribute(runtime, item, *bound[3]));
        parts.push_back(SortKey(part, case_sensitive));
      }
      key = parts.size() == 1 ? parts[0] : Value::MakeList(std::move(parts));
    } else {
      key = SortKey(item, case_sensitive);
    }
    entries.push_back({std::move(key), item});
  }
  RETURN_IF_ERROR(SortBy(runtime, bound[1] != nullptr && bound[1]->Truthy(), &entries));
  std::vector<Value> out;
  for (Sorted& entry : entries) out.push_back(std::move(entry.item));
  return runtime.MakeList(std::move(out));
}

Result DictSort(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind(name, args, {"value", "case_sensitive", "by", "reverse"}));
  if (!bound[0]->is_dict()) return absl::InvalidArgumentError("dictsort() takes a dictionary");
  const bool case_sensitive = bound[1] != nullptr && bound[1]->Truthy();
  std::string by = "key";
  if (bound[2] != nullptr) {
    ASSIGN_OR_RETURN(by, ToString(*bound[2], "by"));
  }
  if (by != "key" && by != "value") {
    return absl::InvalidArgumentError("You can only sort by either \"key\" or \"value\"");
  }
  std::vector<Sorted> entries;
  for (const auto& [key, value] : bound[0]->dict().items()) {
    ASSIGN_OR_RETURN(Value pair, runtime.MakeList({key, value}, true));
    entries.push_back({SortKey(by == "key" ? key : value, case_sensitive), std::move(pair)});
  }
  RETURN_IF_ERROR(SortBy(runtime, bound[3] != nullptr && bound[3]->Truthy(), &entries));
  std::vector<Value> out;
  for (Sorted& entry : entries) out.push_back(std::move(entry.item));
  return runtime.MakeList(std::move(out));
}

Result Unique(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"value", "case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const auto items, runtime.Iterate(*bound[0]));
  const bool case_sensitive = bound[1] != nullptr && bound[1]->Truthy();
  Dict seen;
  std::vector<Value> out;
  for (const Value& item : items->items) {
    Value key = item;
    if (bound[2] != nullptr && !bound[2]->is_none()) {
      ASSIGN_OR_RETURN(key, Attribute(runtime, item, *bound[2]));
    }
    key = SortKey(key, case_sensitive);
    RETURN_IF_ERROR(runtime.Charge(key.weight()));
    if (seen.Find(key) != nullptr) continue;
    if (!seen.Set(key, Value())) {
      return absl::InvalidArgumentError(absl::StrCat("unhashable type: '", key.TypeName(), "'"));
    }
    out.push_back(item);
  }
  return runtime.MakeList(std::move(out));
}

Result MinOrMax(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"value", "case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const auto items, runtime.Iterate(*bound[0]));
  const bool case_sensitive = bound[1] != nullptr && bound[1]->Truthy();
  Value best = Value::MakeUndefined("No aggregated item, sequence was empty.");
  Value best_key;
  bool any = false;
  for (const Value& item : items->items) {
    Value key = item;
    if (bound[2] != nullptr && !bound[2]->is_none()) {
      ASSIGN_OR_RETURN(key, Attribute(runtime, item, *bound[2]));
    }
    key = SortKey(key, case_sensitive);
    RETURN_IF_ERROR(runtime.Charge(key.weight()));
    if (any) {
      ASSIGN_OR_RETURN(const int order, Compare(key, best_key));
      if (name == "min" ? order >= 0 : order <= 0) continue;
    }
    any = true;
    best = item;
    best_key = key;
  }
  return best;
}

Result Sum(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"iterable", "attribute", "start"}));
  ASSIGN_OR_RETURN(const auto items, runtime.Iterate(*bound[0]));
  Value total = bound[2] == nullptr ? Value(0) : *bound[2];
  for (Value item : items->items) {
    if (bound[1] != nullptr && !bound[1]->is_none()) {
      ASSIGN_OR_RETURN(item, Attribute(runtime, item, *bound[1]));
    }
    ASSIGN_OR_RETURN(total, runtime.Binary("+", total, item));
  }
  return total;
}

Result Map(Runtime& runtime, const std::string& name, Arguments& args) {
  if (!args.positional[0].Truthy()) return runtime.MakeList({});  // none too, as in the reference
  ASSIGN_OR_RETURN(const auto items, runtime.Iterate(args.positional[0]));
  const Value* attribute = nullptr;
  const Value* otherwise = nullptr;
  if (args.positional.size() == 1) {
    for (const auto& [key, value] : args.named) {
      if (key == "attribute") attribute = &value;
      if (key == "default") otherwise = &value;
    }
    if (attribute == nullptr) return absl::InvalidArgumentError("map requires a filter argument");
  }
  std::vector<Value> out;
  for (const Value& item : items->items) {
    RETURN_IF_ERROR(runtime.Step());
    Value mapped;
    if (attribute != nullptr) {
      ASSIGN_OR_RETURN(mapped, Attribute(runtime, item, *attribute));
      if (mapped.is_undefined() && otherwise != nullptr) mapped = *otherwise;
    } else {
      ASSIGN_OR_RETURN(const std::string filter, ToString(args.positional[1], "a filter's name"));
      Arguments call;
      call.positional.push_back(item);
      call.positional.insert(call.positional.end(), args.positional.begin() + 2,
                             args.positional.end());
      call.named = args.named;
      ASSIGN_OR_RETURN(mapped, runtime.CallFilter(filter, call));
    }
    out.push_back(std::move(mapped));
  }
  return runtime.MakeList(std::move(out));
}

// select, reject, selectattr, rejectattr.
Result Select(Runtime& runtime, const std::string& name, Arguments& args) {
  if (!args.positional[0].Truthy()) return runtime.MakeList({});  // none too, as in the reference
  ASSIGN_OR_RETURN(const auto items, runtime.Iterate(args.positional[0]));
  const bool by_attribute = name == "selectattr" || name == "rejectattr";
  const bool wanted = name == "select" || name == "selectattr";
  const size_t test_at = by_attribute ? 2 : 1;
  if (by_attribute && args.positional.size() < 2) {
    return absl::InvalidArgumentError("Missing parameter for attribute name");
  }
  std::vector<Value> out;
  for (const Value& item : items->items) {
    RETURN_IF_ERROR(runtime.Step());
    Value subject = item;
    if (by_attribute) {
      ASSIGN_OR_RETURN(subject, Attribute(runtime, item, args.positional[1]));
    }
    bool passes = subject.Truthy();
    if (args.positional.size() > test_at) {
      ASSIGN_OR_RETURN(const std::string test, ToString(args.positional[test_at], "a test's name"));
      Arguments call;
      call.positional.push_back(subject);
      call.positional.insert(call.positional.end(),
                             args.positional.begin() + static_cast<ptrdiff_t>(test_at) + 1,
                             args.positional.end());
      call.named = args.named;
      ASSIGN_OR_RETURN(passes, runtime.CallTest(test, call));
    }
    if (passes == wanted) out.push_back(item);
  }
  return runtime.MakeList(std::move(out));
}

// Pairs of a value and the items that have it, in the order of the values.
Result GroupBy(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind(name, args, {"value", "attribute", "default", "case_sensitive"}));
  if (bound[1] == nullptr) return absl::InvalidArgumentError("groupby() takes an attribute");
  ASSIGN_OR_RETURN(const auto items, runtime.Iterate(*bound[0]));
  const bool case_sensitive = bound[3] != nullptr && bound[3]->Truthy();
  std::vector<Sorted> entries;
  for (const Value& item : items->items) {
    ASSIGN_OR_RETURN(Value key, Attribute(runtime, item, *bound[1]));
    if (key.is_undefined() && bound[2] != nullptr) key = *bound[2];
    ASSIGN_OR_RETURN(Value pair, runtime.MakeList({key, item}, true));
    entries.push_back({SortKey(key, case_sensitive), std::move(pair)});
  }
  RETURN_IF_ERROR(SortBy(runtime, false, &entries));
  std::vector<Value> out;
  for (size_t begin = 0; begin < entries.size();) {
    size_t end = begin;
    std::vector<Value> group;
    while (end < entries.size() && entries[end].key.Equals(entries[begin].key)) {
      group.push_back(entries[end++].item.list().items[1]);
    }
    ASSIGN_OR_RETURN(Value members, runtime.MakeList(std::move(group)));
    ASSIGN_OR_RETURN(
        Value pair,
        runtime.MakeList({entries[begin].item.list().items[0], std::move(members)}, true));
    out.push_back(std::move(pair));
    begin = end;
  }
  return runtime.MakeList(std::move(out));
}

// batch(n): rows of n. slice(n): n columns.
Result BatchOrSlice(Runtime& runtime, const std::string& name, Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(name, args, {"value", "count", "fill_with"}));
  if (bound[1] == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(name, "() takes a count"));
  ASSIGN_OR_RETURN(const auto items, runtime.Iterate(*bound[0]));
  ASSIGN_OR_RETURN(const int64_t count, ToInteger(*bound[1], "count"));
  if (count < 1) return absl::InvalidArgumentError("count must be 1 or more");
  const Value* fill = bound[2] != nullptr && !bound[2]->is_none() ? bound[2] : nullptr;
  const auto size = static_cast<int64_t>(items->items.size());
  RETURN_IF_ERROR(runtime.ChargeProduct(name == "slice" || fill != nullptr ? count : 1, 64));
  std::vector<Value> rows;
  if (name == "batch") {
    for (int64_t i = 0; i < size; i += count) {
      const int64_t end = std::min(i + count, size);
      std::vector<Value> row(items->items.begin() + i, items->items.begin() + end);
      if (fill != nullptr) row.resize(static_cast<size_t>(count), *fill);
      ASSIGN_OR_RETURN(Value list, runtime.MakeList(std::move(row)));
      rows.push_back(std::move(list));
    }
  } else {
    const int64_t each = size / count, more = size % count;
    int64_t at = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t end = at + each + (i < more ? 1 : 0);
      std::vector<Value> row(items->items.begin() + at, items->items.begin() + end);
      if (fill != nullptr && i >= more && more > 0) row.push_back(*fill);
      at = end;
      ASSIGN_OR_RETURN(Value list, runtime.MakeList(std::move(row)));
      rows.push_back(std::move(list));
    }
  }
  return runtime.MakeList(std::move(rows));
}

const absl::flat_hash_map<std::string, Filter>& Filters() {
  static const auto* const filters = [] {
    auto* table = new absl::flat_hash_map<std::string, Filter>;
    for (const FilterTable& part : {TextFilters(), NumberFilters(), SequenceFilters()}) {
      table->insert(part.begin(), part.end());
    }
    return table;
  }();
  return *filters;
}

}  // namespace

FilterTable SequenceFilters() {
  return {{"default", Default},
          {"d", Default},
          {"length", LengthFilter},
          {"count", LengthFilter},
          {"join", Join},
          {"first", FirstOrLast},
          {"last", FirstOrLast},
          {"list", ListFilter},
          {"reverse", Reverse},
          {"items", Items},
          {"attr", AttrFilter},
          {"sort", Sort},
          {"dictsort", DictSort},
          {"unique", Unique},
          {"min", MinOrMax},
          {"max", MinOrMax},
          {"sum", Sum},
          {"map", Map},
          {"select", Select},
          {"reject", Select},
          {"selectattr", Select},
          {"rejectattr", Select},
          {"batch", BatchOrSlice},
          {"slice", BatchOrSlice},
          {"groupby", GroupBy}};
}

bool HasFilter(absl::string_view name) { return Filters().contains(name); }

absl::StatusOr<Value> Runtime::CallFilter(const std::string& name, Arguments& arguments) {
  const auto it = Filters().find(name);
  if (it == Filters().end()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no filter '", name, "'"));
  }
  return it->second(*this, name, arguments);
}

}  // namespace tandem::tokenizer::jinja
