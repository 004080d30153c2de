#include "common/model/families/family_table.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/config/merge.h"
#include "common/config/nearest.h"
#include "common/io/read_file.h"
#include "common/model/families/families_yaml.h"
#include "common/model/families/family_check.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr int kMaxRows = 256;
constexpr size_t kMaxChain = 16;  // of rows that are like each other
// Fields that every complete row has.
constexpr const char* kNeeded[] = {"model_type",        "vocab_size",    "hidden_size",
                                   "num_layers",        "num_heads",     "num_kv_heads",
                                   "head_dim",          "norm_eps",      "activation",
                                   "intermediate_size", "max_positions", "initializer_range"};

// Of its experts, if it states any.
constexpr const char* kNeededOfExperts[] = {"num_experts", "top_k", "intermediate_size"};
// Fields that a complete row's latent attention has.
constexpr const char* kNeededOfLatent[] = {"kv_rank", "nope_dim", "rope_dim"};

void CheckLatent(const v1::Latent& latent, const std::string& path, FamilyChecker& checker) {
  for (const char* needed : kNeededOfLatent) {
    if (FamilyChecker::IsSet(latent, *latent.GetDescriptor()->FindFieldByName(needed))) continue;
    checker.Add(path, needed, "expected a value, in this row or in one that it is like");
  }
}

// Puts the elements of a list before those of another.
template <typename T>
void Prepend(const google::protobuf::RepeatedPtrField<T>& list,
             google::protobuf::RepeatedPtrField<T>* onto) {
  google::protobuf::RepeatedPtrField<T> joined = list;
  joined.MergeFrom(*onto);
  onto->Swap(&joined);
}

// Clears values of `*onto` that `from` has too, so that merging replaces them.
void ClearValues(const Message& from, Message* onto) {
  std::vector<const FieldDescriptor*> fields;
  from.GetReflection()->ListFields(from, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (field->is_repeated()) continue;
      ClearValues(from.GetReflection()->GetMessage(from, field),
                  onto->GetReflection()->MutableMessage(onto, field));
    } else if (field->is_repeated()) {
      onto->GetReflection()->ClearField(onto, field);
    }
  }
}

std::string WithoutSuffix(absl::string_view architecture) {
  absl::ConsumeSuffix(&architecture, "ForCausalLM");
  absl::ConsumeSuffix(&architecture, "LMHeadModel");
  return std::string(architecture);
}

// The architecture of the row most like `architecture`; "" if none is.
std::string NearestOf(absl::string_view architecture, const std::vector<v1::FamilyRow>& rows) {
  std::vector<std::string> names;
  for (const v1::FamilyRow& row : rows) names.push_back(WithoutSuffix(row.architecture()));
  const std::string nearest = config::Nearest(WithoutSuffix(architecture), names);
  for (size_t i = 0; i < names.size() && !nearest.empty(); ++i) {
    if (names[i] == nearest) return rows[i].architecture();
  }
  return "";
}

FamilyTable& MutableFamilies() {
  static FamilyTable* const table = [] {
    auto* built_in = new FamilyTable;
    if (const absl::Status status = built_in->Add(kFamiliesYaml, "families.yaml"); !status.ok()) {
      std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
      std::abort();  // the file is part of the program, and a test reads it
    }
    return built_in;
  }();
  return *table;
}

}  // namespace

void PutOnto(const v1::FamilyRow& row, v1::FamilyRow* onto) {
  v1::FamilyRow values = row;
  Prepend(row.require(), onto->mutable_require());
  Prepend(row.weights(), onto->mutable_weights());
  Prepend(row.layer_weights(), onto->mutable_layer_weights());
  Prepend(row.ignored_tensors(), onto->mutable_ignored_tensors());
  Prepend(row.layer_constants(), onto->mutable_layer_constants());
  values.clear_layer_constants();
  values.clear_require();
  values.clear_weights();
  values.clear_layer_weights();
  values.clear_ignored_tensors();
  ClearValues(values, onto);
  onto->MergeFrom(values);  // variants of the other row come first
}

absl::Status FamilyTable::Add(absl::string_view text, const std::string& name) {
  v1::FamilyTable table;
  config::Merger merger(&table);
  merger.MergeYaml(text, name);
  if (!merger.errors().empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(merger.errors(), "\n"));
  }
  if (table.families_size() > kMaxRows) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": families: expected at most ", kMaxRows,
                                                   " rows, found ", table.families_size()));
  }
  FamilyChecker checker(name, merger.places());
  const auto path = [](int i) { return absl::StrCat("families[", i, "]"); };
  for (int i = 0; i < table.families_size(); ++i) {
    const v1::FamilyRow& row = table.families(i);
    checker.CheckRow(row, path(i));
    for (int j = 0; j < i; ++j) {
      if (table.families(j).architecture() == row.architecture()) {
        checker.Add(path(i), "architecture", absl::StrCat("a second row for ", row.architecture()));
      }
    }
  }
  std::vector<v1::FamilyRow> complete;
  for (int i = 0; i < table.families_size() && checker.errors().empty(); ++i) {
    complete.push_back(Complete(table, i, path(i), checker));
  }
  if (!checker.errors().empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(checker.errors(), "\n"));
  }
  for (v1::FamilyRow& row : complete) {
    const auto same = std::find_if(rows_.begin(), rows_.end(), [&](const v1::FamilyRow& other) {
      return other.architecture() == row.architecture();
    });
    if (same == rows_.end()) {
      rows_.push_back(std::move(row));
    } else {
      *same = std::move(row);
    }
  }
  return absl::OkStatus();
}

v1::FamilyRow FamilyTable::Complete(const v1::FamilyTable& table, int i, const std::string& path,
                                    FamilyChecker& checker) const {
  const auto find = [&](const v1::FamilyRow& of) -> const v1::FamilyRow* {
    for (const v1::FamilyRow& row : table.families()) {
      // A row that takes another one's place may be like it.
      if (row.architecture() == of.like() && of.like() != of.architecture()) return &row;
    }
    return FindArchitecture(of.like());
  };
  // This row, the one it is like, and so on.
  std::vector<const v1::FamilyRow*> chain = {&table.families(i)};
  while (!chain.back()->like().empty()) {
    const v1::FamilyRow* const next = find(*chain.back());
    if (next == nullptr) {
      std::vector<v1::FamilyRow> known = rows_;
      known.insert(known.end(), table.families().begin(), table.families().end());
      const std::string nearest = NearestOf(chain.back()->like(), known);
      checker.Add(
          path, "like",
          absl::StrCat("no row for ", chain.back()->like(),
                       nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
      return {};
    }
    if (std::find(chain.begin(), chain.end(), next) != chain.end()) {
      checker.Add(path, "like", absl::StrCat("leads in a circle to ", next->architecture()));
      return {};
    }
    if (chain.size() == kMaxChain) {
      checker.Add(path, "like",
                  absl::StrCat("leads through more than ", kMaxChain, " rows to ",
                               next->architecture(), "; state what they state in this row"));
      return {};
    }
    chain.push_back(next);
  }
  v1::FamilyRow row;
  for (auto of_chain = chain.rbegin(); of_chain != chain.rend(); ++of_chain) {
    PutOnto(**of_chain, &row);
  }
  row.clear_like();
  for (const char* needed : kNeeded) {
    if (FamilyChecker::IsSet(row, *row.GetDescriptor()->FindFieldByName(needed))) continue;
    checker.Add(path, needed, "expected a value, in this row or in one that it is like");
  }
  for (const char* needed : kNeededOfExperts) {
    const v1::Experts& experts = row.experts();
    if (!row.has_experts()) break;
    if (FamilyChecker::IsSet(experts, *experts.GetDescriptor()->FindFieldByName(needed))) continue;
    checker.Add(path + ".experts", needed,
                "expected a value, in this row or in one that it is like");
  }
  if (row.has_latent()) CheckLatent(row.latent(), absl::StrCat(path, ".latent"), checker);
  for (int v = 0; v < row.variants_size(); ++v) {
    if (!row.variants(v).has_latent()) continue;
    v1::Latent latent = row.latent();
    latent.MergeFrom(row.variants(v).latent());
    CheckLatent(latent, absl::StrCat(path, ".variants[", v, "].latent"), checker);
  }
  return row;
}

const v1::FamilyRow* FamilyTable::FindArchitecture(absl::string_view architecture) const {
  for (const v1::FamilyRow& row : rows_) {
    if (row.architecture() == architecture) return &row;
  }
  return nullptr;
}

const v1::FamilyRow* FamilyTable::FindModelType(absl::string_view model_type) const {
  for (const v1::FamilyRow& row : rows_) {
    if (row.model_type() == model_type) return &row;
  }
  return nullptr;
}

const v1::FamilyRow* FamilyTable::FindPartOf(absl::string_view name) const {
  for (const v1::FamilyRow& row : rows_) {
    if (std::find(row.part_of().begin(), row.part_of().end(), name) != row.part_of().end())
      return &row;
  }
  return nullptr;
}

std::string FamilyTable::Nearest(absl::string_view architecture) const {
  return NearestOf(architecture, rows_);
}

const FamilyTable& Families() { return MutableFamilies(); }

absl::Status AddFamilyFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> text = io::ReadFile(path, kMaxFileBytes);
  RETURN_IF_ERROR(text.status()) << "model.family_file";
  return MutableFamilies().Add(*text, path);
}

}  // namespace tandem::model
