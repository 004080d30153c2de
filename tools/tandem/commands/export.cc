// tandem export: a sharded checkpoint as a Hugging Face folder; no trainer is needed.
#include "common/checkpoint/export.h"

#include <cstdio>
#include <memory>

#include "common/io/json_text.h"
#include "common/model/families/family_table.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/commands/command.h"

namespace tandem::commands {
namespace {

struct ExportOptions {
  checkpoint::ExportOptions to;
  std::string dtype = "float32";
  double max_shard_gigabytes = 5;
  std::string family_file;
};

absl::Status RunExport(const ExportOptions& options) {
  RETURN_IF_ERROR(model::AddFamilyFile(options.family_file));
  checkpoint::ExportOptions to = options.to;
  ASSIGN_OR_RETURN(to.dtype, io::ParseDType(options.dtype));
  to.max_shard_bytes = static_cast<int64_t>(options.max_shard_gigabytes * 1e9);
  ASSIGN_OR_RETURN(const checkpoint::ExportReport report, checkpoint::ExportCheckpoint(to));
  const nlohmann::json line = {{"output", to.output},
                               {"step", report.step},
                               {"policy_version", report.policy_version},
                               {"tensors", report.num_tensors},
                               {"bytes", report.size_bytes}};
  std::printf("%s\n", io::JsonText(line).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddExport(CLI::App& app, Runner& runner) {
  CLI::App* command =
      app.add_subcommand("export", "Writes a sharded checkpoint as a Hugging Face folder");
  auto options = std::make_shared<ExportOptions>();
  command->add_option("--checkpoint", options->to.checkpoint, "Folder of the checkpoint")
      ->required();
  command->add_option("--output", options->to.output, "Folder to write; must be empty or absent")
      ->required();
  command->add_option("--model", options->to.model, "Model to export (default policy)");
  command->add_option("--source", options->to.source_folder,
                      "Folder of config.json, the tokenizer and the tensors' names (default: the "
                      "run's model.path)");
  command->add_option("--family-file", options->family_file, "model.family_file of the run");
  command->add_option("--dtype", options->dtype, "float32 or bfloat16 (default float32)")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  command
      ->add_option("--max-shard-size", options->max_shard_gigabytes,
                   "Largest safetensors file in GB; splits larger models (default 5)")
      ->check(CLI::PositiveNumber);
  command->callback([&runner, options] { runner = [options] { return RunExport(*options); }; });
}

}  // namespace tandem::commands
