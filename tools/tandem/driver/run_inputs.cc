#include "tools/tandem/driver/run_inputs.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/teacher.h"
#include "common/hash/hasher.h"
#include "common/io/model_folder.h"
#include "common/io/read_file.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/reward_parts.h"

namespace tandem::driver {
namespace {

namespace fs = std::filesystem;

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

void Add(const char* kind, std::string path, std::string digest, RunInputs& inputs) {
  v1::InputDigest& input = inputs.emplace_back();
  input.set_kind(kind);
  input.set_path(std::move(path));
  input.set_digest(std::move(digest));
}

absl::Status AddFile(const char* kind, const std::string& path, RunInputs& inputs) {
  if (!Exists(path)) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::string digest, io::DigestFile(path));
  Add(kind, path, std::move(digest), inputs);
  return absl::OkStatus();
}

// tokenizer_config.json holds both the tokenizer's settings and, in most folders, the template.
absl::Status AddTokenizer(const std::string& folder, RunInputs& inputs) {
  RETURN_IF_ERROR(AddFile(kTokenizerInput, folder + "/tokenizer.json", inputs));
  RETURN_IF_ERROR(AddFile(kTokenizerInput, folder + "/special_tokens_map.json", inputs));
  hash::Hasher templates;
  bool has_template = false;
  const std::string config_path = folder + "/tokenizer_config.json";
  if (Exists(config_path)) {
    ASSIGN_OR_RETURN(nlohmann::json config, io::ReadJsonFile(config_path));
    constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
    if (const auto found = config.find("chat_template"); found != config.end()) {
      templates.Update(found->dump(-1, ' ', false, kReplace));
      has_template = true;
      config.erase(found);
    }
    hash::Hasher rest;
    rest.Update(config.dump(-1, ' ', false, kReplace));
    Add(kTokenizerInput, config_path, rest.Hex(), inputs);
  }
  std::vector<std::string> paths = {folder + "/chat_template.jinja"};
  std::error_code error;
  for (fs::directory_iterator it(folder + "/additional_chat_templates", error), end;
       !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".jinja") paths.push_back(it->path().string());
  }
  std::sort(paths.begin() + 1, paths.end());
  for (const std::string& path : paths) {
    if (!Exists(path)) continue;
    ASSIGN_OR_RETURN(const std::string text, io::ReadFile(path));
    templates.Update(
        absl::StrCat(fs::path(path).filename().string(), "\n", text.size(), "\n", text));
    has_template = true;
  }
  if (has_template) Add(kChatTemplateInput, folder, templates.Hex(), inputs);
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> InputKinds() {
  return {kConfigInput, kFamilyFileInput, kTokenizerInput, kChatTemplateInput,
          kDataInput,   kTestDataInput,   kRewardInput,    kTeacherInput};
}

absl::StatusOr<RunInputs> DigestModelInputs(const config::v1::RunConfig& config) {
  RunInputs inputs;
  for (const std::string& folder : {config.model().path(), config.critic().model().path()}) {
    if (folder.empty()) continue;
    for (const char* name : {"/config.json", "/generation_config.json"}) {
      RETURN_IF_ERROR(AddFile(kConfigInput, folder + name, inputs));
    }
  }
  RETURN_IF_ERROR(AddTokenizer(config.model().path(), inputs));
  const std::string& family_file = config.model().family_file();
  if (family_file.empty()) {
    Add(kFamilyFileInput, "", "", inputs);
  } else {
    RETURN_IF_ERROR(AddFile(kFamilyFileInput, family_file, inputs));
  }
  return inputs;
}

void AddDataInputs(const char* kind, const std::vector<DataFile>& files, RunInputs& inputs) {
  for (const DataFile& file : files) Add(kind, file.path, file.digest, inputs);
}

absl::Status AddRewardInputs(const config::v1::RewardConfig& config, RunInputs& inputs) {
  const size_t num_before = inputs.size();
  for (const RewardPart& part : RewardParts(config)) {
    const std::string& judge_template = part.judge.template_file();
    const std::string& model = part.model.path();
    for (const std::string& file :
         {part.path, judge_template, model.empty() ? model : model + "/config.json"}) {
      if (file.empty()) continue;
      RETURN_IF_ERROR(AddFile(kRewardInput, file, inputs));
    }
  }
  if (inputs.size() == num_before) Add(kRewardInput, "", "", inputs);
  return absl::OkStatus();
}

absl::Status AddTeacherInputs(const config::v1::RunConfig& config, RunInputs& inputs) {
  const std::vector<config::TeacherSource> teachers = config::TeachersOf(config);
  if (teachers.empty()) Add(kTeacherInput, "", "", inputs);
  if (std::all_of(teachers.begin(), teachers.end(),
                  [](const config::TeacherSource& teacher) { return teacher.path.empty(); })) {
    return absl::OkStatus();
  }
  for (const config::TeacherSource& teacher : teachers) {
    if (teacher.path.empty()) {
      Add(kTeacherInput, teacher.endpoint, "", inputs);
      continue;
    }
    RETURN_IF_ERROR(AddFile(kTeacherInput, teacher.path + "/config.json", inputs));
    absl::StatusOr<io::ModelFolder> folder = io::ModelFolder::Open(teacher.path);
    RETURN_IF_ERROR(folder.status()) << teacher.key << ".path";
    std::set<std::string> files;
    for (const std::string& name : folder->names()) files.insert(folder->FileOf(name));
    for (const std::string& file : files) RETURN_IF_ERROR(AddFile(kTeacherInput, file, inputs));
  }
  return absl::OkStatus();
}

InputChanges CompareInputs(const RunInputs& expected, const RunInputs& found) {
  using Files = std::vector<const v1::InputDigest*>;
  std::map<std::string, std::pair<Files, Files>> kinds;
  for (const v1::InputDigest& input : expected) kinds[input.kind()].first.push_back(&input);
  for (const v1::InputDigest& input : found) kinds[input.kind()].second.push_back(&input);
  InputChanges out;
  for (const auto& [kind, files] : kinds) {
    const auto& [was, is] = files;
    const bool may_lack = kind == kTestDataInput || kind == kRewardInput ||
                          kind == kFamilyFileInput || kind == kTeacherInput;
    if (may_lack && (was.empty() || is.empty())) continue;
    for (size_t i = 0; i < std::max(was.size(), is.size()); ++i) {
      const std::string before = i < was.size() ? was[i]->digest() : "";
      const std::string now = i < is.size() ? is[i]->digest() : "";
      if (before == now) continue;
      out.kinds.insert(kind);
      const bool names_is = i >= was.size() || (i < is.size() && !is[i]->path().empty());
      out.lines.push_back(
          absl::StrCat(kind, ": ", names_is ? is[i]->path() : was[i]->path(), ": expected ",
                       before.empty() ? "no such file" : absl::StrCat("the digest ", before),
                       ", found ", now.empty() ? "none" : now));
    }
  }
  return out;
}

}  // namespace tandem::driver
