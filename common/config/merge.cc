#include "common/config/merge.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <sstream>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/config/nearest.h"
#include "common/config/scalar.h"
#include "common/status/exceptions.h"

namespace tandem::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// A configuration is a page of text. A larger file is a mistake, and yaml-cpp's memory grows with
// it.
constexpr size_t kMaxYamlBytes = 1 << 20;
constexpr size_t kMaxListLength = 100000;
// Fields of the merged sections plus bytes of their keys and values: each field takes memory even
// where it is not set. The built-in table of families, the largest file there is, merges a small
// part of this.
constexpr size_t kMaxMerged = 4 * kMaxYamlBytes;
// Sections within sections. Schemas go five deep; only one that contains itself goes deeper.
constexpr int kMaxDepth = 16;

// What yaml-cpp throws beside its own exceptions is for want of memory more often than for the text.
std::string NotYaml(const std::exception& error) {
  const absl::Status status = StatusOf(error);
  return absl::IsResourceExhausted(status) ? std::string(status.message())
                                           : absl::StrCat("not valid YAML: ", error.what());
}

std::string Join(const std::string& path, const std::string& key) {
  return path.empty() ? key : absl::StrCat(path, ".", key);
}

std::vector<std::string> FieldNames(const Descriptor& type) {
  std::vector<std::string> out;
  for (int i = 0; i < type.field_count(); ++i) out.push_back(type.field(i)->name());
  return out;
}

bool IsSection(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_repeated();
}

// Paths of the fields called `key` anywhere below.
void FindElsewhere(const Descriptor& type, const std::string& key, const std::string& path,
                   std::vector<std::string>* out) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.name() == key) out->push_back(Join(path, field.name()));
    if (IsSection(field)) FindElsewhere(*field.message_type(), key, Join(path, field.name()), out);
  }
}

// Records where each document of a text starts, and nothing else.
class DocumentStarts : public YAML::EventHandler {
 public:
  const std::vector<YAML::Mark>& marks() const { return marks_; }

  void OnDocumentStart(const YAML::Mark& mark) override { marks_.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  std::vector<YAML::Mark> marks_;
};

// Finds the first two documents. In some texts (",") yaml-cpp finds documents without end, so this
// stops at two, and YAML::LoadAll() is unusable.
std::vector<YAML::Mark> FindDocuments(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStarts starts;
  while (starts.marks().size() < 2 && parser.HandleNextDocument(starts)) continue;
  return starts.marks();
}

// Length of a bracketed address with a port, such as [fd77::1]:5000, at the front of `text`; 0 if
// there is none.
size_t AddressLength(absl::string_view text) {
  constexpr absl::string_view kDigits = "0123456789";
  const size_t close = text.find_first_of("[]", 1);
  if (text[0] != '[' || close == absl::string_view::npos || text[close] != ']') return 0;
  const absl::string_view host = text.substr(1, close - 1);
  const size_t zone = std::min(host.find('%'), host.size());  // fe80::1%eth0
  if (host.substr(0, zone).find_first_not_of("0123456789abcdefABCDEF:.") !=
          absl::string_view::npos ||
      host.find(':') == absl::string_view::npos ||
      host.find_first_of(" ,\"'{}") != absl::string_view::npos) {
    return 0;
  }
  const absl::string_view rest = text.substr(close + 1);
  if (rest.size() < 2 || rest[0] != ':') return 0;
  const size_t end = std::min(rest.find_first_not_of(kDigits, 1), rest.size());
  if (end == 1 || (end < rest.size() && rest[end] != ',' && rest[end] != ']' && rest[end] != ' ')) {
    return 0;
  }
  return close + 1 + end;
}

// Quotes bracketed IPv6 addresses that are a whole value or a list's element: to YAML the bracket
// starts a list.
std::string QuoteAddresses(absl::string_view value) {
  std::string out;
  char before = '[';  // the last character that is no space; a value begins where a list's would
  while (!value.empty()) {
    size_t length = 1;
    const size_t address = before == '[' || before == ',' ? AddressLength(value) : 0;
    if (address > 0) {
      length = address;
      absl::StrAppend(&out, "\"", value.substr(0, address), "\"");
    } else {
      out += value[0];
    }
    if (value[length - 1] != ' ') before = value[length - 1];
    value.remove_prefix(length);
  }
  return out;
}

}  // namespace

void Merger::MergeYaml(absl::string_view text, const std::string& name) {
  const Source source{name, /*has_lines=*/true, /*keep_places=*/!name.empty()};
  merged_ = 0;
  if (text.size() > kMaxYamlBytes) {
    return AddError(name, "",
                    absl::StrFormat("expected a configuration of at most %d bytes, found %d",
                                    kMaxYamlBytes, text.size()));
  }
  const std::string yaml(text);
  YAML::Node document;
  try {
    const std::vector<YAML::Mark> documents = FindDocuments(yaml);
    if (documents.empty()) return;  // an empty file states nothing
    if (documents.size() > 1) {
      return AddError(absl::StrCat(name, ":", documents[1].line + 1), "",
                      "expected one YAML document, found a second one");
    }
    document = YAML::Load(yaml);
  } catch (const YAML::Exception& e) {
    const std::string line = e.mark.is_null() ? "" : absl::StrCat(":", e.mark.line + 1);
    return AddError(absl::StrCat(name, line), "", absl::StrCat("not valid YAML: ", e.msg));
  } catch (const std::exception& e) {
    return AddError(name, "", NotYaml(e));
  }
  try {
    MergeSection(source, document, "", root_);
  } catch (const std::exception& e) {
    AddError(name, "", NotYaml(e));
  }
}

void Merger::MergeOverride(const std::string& assignment) {
  const Source source{absl::StrCat("--set ", assignment), /*has_lines=*/false};
  merged_ = 0;
  const std::vector<std::string> sides = absl::StrSplit(assignment, absl::MaxSplits('=', 1));
  if (sides.size() != 2 || sides[0].empty()) {
    return AddError(source.name, "", "expected KEY=VALUE, for instance actor.optim.lr=1e-6");
  }
  if (sides[1].size() > kMaxYamlBytes) {
    return AddError(absl::StrCat("--set ", sides[0]), "", "the value is too large");
  }
  Message* section = root_;
  const FieldDescriptor* field = nullptr;
  std::string path;
  for (const absl::string_view part : absl::StrSplit(sides[0], '.')) {
    const std::string key(part);
    if (field != nullptr) {
      if (!IsSection(*field)) {
        return AddError(source.name, path, absl::StrCat("has no keys below it, found '", key, "'"));
      }
      section = section->GetReflection()->MutableMessage(section, field);
    }
    path = Join(path, key);
    field = section->GetDescriptor()->FindFieldByName(key);
    if (field == nullptr) return AddError(source.name, path, UnknownKey(key, *section));
  }
  try {
    const bool is_text = field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    MergeField(source, YAML::Load(is_text ? QuoteAddresses(sides[1]) : sides[1]), path, *field,
               section);
  } catch (const YAML::Exception& e) {
    AddError(source.name, path, absl::StrCat("the value is not valid YAML: ", e.msg));
  } catch (const std::exception& e) {
    AddError(source.name, path, NotYaml(e));
  }
}

void Merger::MergeSection(const Source& source, const YAML::Node& node, const std::string& path,
                          Message* message) {
  if (node.IsNull()) return;  // a section whose keys are all commented out
  if (!node.IsMap()) {
    return AddError(PlaceOf(source, node), path,
                    absl::StrFormat("expected a section of keys (%s), found %s",
                                    absl::StrJoin(FieldNames(*message->GetDescriptor()), ", "),
                                    node.IsSequence() ? "a list" : "a value"));
  }
  if (depth_ == kMaxDepth) {
    return AddError(PlaceOf(source, node), path,
                    absl::StrFormat("expected at most %d sections within each other, found more; "
                                    "does an alias (*) stand within its own anchor (&)?",
                                    kMaxDepth));
  }
  const size_t num_fields = static_cast<size_t>(message->GetDescriptor()->field_count());
  if (!Charge(source, node, path, num_fields)) return;
  ++depth_;
  const absl::Cleanup leave = [this] { --depth_; };
  std::map<std::string, std::string> seen;
  for (const auto& entry : node) {
    const std::string place = PlaceOf(source, entry.first);
    if (!Charge(source, entry.first, path, 1)) return;
    if (!entry.first.IsScalar()) {
      AddError(place, path, "expected a key, found a list or section");
      continue;
    }
    const std::string key = entry.first.Scalar();
    const std::string key_path = Join(path, key);
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(key);
    if (field == nullptr) {
      AddError(place, key_path, UnknownKey(key, *message));
      continue;
    }
    if (const auto [first, fresh] = seen.emplace(key, place); !fresh) {
      AddError(place, key_path, absl::StrCat("stated twice; the first is at ", first->second));
      continue;
    }
    MergeField(source, entry.second, key_path, *field, message);
    if (source.keep_places && places_.count(key_path) > 0) places_[key_path] = place;
  }
}

void Merger::MergeField(const Source& source, const YAML::Node& node, const std::string& path,
                        const FieldDescriptor& field, Message* message) {
  if (IsSection(field)) {
    MergeSection(source, node, path, message->GetReflection()->MutableMessage(message, &field));
    return;
  }
  if (source.keep_places) places_[path] = PlaceOf(source, node);
  if (!Charge(source, node, path, 1)) return;
  if (field.is_repeated()) return MergeList(source, node, path, field, message);
  const std::string problem = SetScalar(node, field, message);
  if (!problem.empty()) AddError(PlaceOf(source, node), path, problem);
}

// A list replaces the former one as a whole. A single value counts as a list of one: `train_files:
// a.jsonl`.
void Merger::MergeList(const Source& source, const YAML::Node& node, const std::string& path,
                       const FieldDescriptor& field, Message* message) {
  const std::unique_ptr<Message> fresh(message->New());
  std::string problem;
  if (node.IsMap()) {
    if (node.size() > 0) problem = "expected a list, found a section of keys";
  } else if (node.IsSequence()) {
    if (node.size() > kMaxListLength) {
      problem =
          absl::StrFormat("expected at most %d elements, found %d", kMaxListLength, node.size());
    }
    for (size_t i = 0; i < node.size() && problem.empty(); ++i) {
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        const size_t errors_before = errors_.size();
        MergeSection(source, node[i], absl::StrFormat("%s[%d]", path, i),
                     fresh->GetReflection()->AddMessage(fresh.get(), &field));
        // Aliases could repeat the errors of a large element without end.
        if (errors_.size() > errors_before) return;
        continue;
      }
      if (!Charge(source, node[i], path, 1)) return;
      problem = SetScalar(node[i], field, fresh.get());
      if (!problem.empty()) problem = absl::StrFormat("element %d: %s", i, problem);
    }
  } else if (!node.IsNull()) {
    problem = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE
                  ? "expected a list of sections, found a value"
                  : SetScalar(node, field, fresh.get());
  }
  if (!problem.empty()) return AddError(PlaceOf(source, node), path, problem);
  message->GetReflection()->SwapFields(message, fresh.get(), {&field});
}

bool Merger::Charge(const Source& source, const YAML::Node& node, const std::string& path,
                    size_t size) {
  if (merged_ > kMaxMerged) return false;
  merged_ += size + (node.IsScalar() ? node.Scalar().size() : 0);
  if (merged_ <= kMaxMerged) return true;
  AddError(PlaceOf(source, node), path,
           absl::StrFormat("expected at most %d fields and bytes with all aliases (*) replaced by "
                           "what they stand for, found more; use fewer aliases",
                           kMaxMerged));
  return false;
}

std::string Merger::PlaceOf(const Source& source, const YAML::Node& node) const {
  if (!source.has_lines) return source.name;
  const YAML::Mark mark = node.Mark();
  return mark.is_null() ? source.name : absl::StrCat(source.name, ":", mark.line + 1);
}

std::string Merger::UnknownKey(const std::string& key, const Message& section) const {
  const std::vector<std::string> known = FieldNames(*section.GetDescriptor());
  std::string meant = Nearest(key, known);
  if (meant.empty()) {
    std::vector<std::string> elsewhere;
    FindElsewhere(*root_->GetDescriptor(), key, "", &elsewhere);
    meant = absl::StrJoin(elsewhere, "' or '");
  }
  return absl::StrCat("unknown key",
                      meant.empty() ? "" : absl::StrCat("; did you mean '", meant, "'?"),
                      " (known: ", absl::StrJoin(known, ", "), ")");
}

void Merger::AddError(const std::string& place, const std::string& path,
                      const std::string& problem) {
  std::string line = place;
  for (const std::string& part : {path, problem}) {
    if (!part.empty()) absl::StrAppend(&line, line.empty() ? "" : ": ", part);
  }
  errors_.push_back(std::move(line));
}

}  // namespace tandem::config
