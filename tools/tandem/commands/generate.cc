// tandem generate: completions of prompts.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/config/load.h"
#include "common/io/jsonl.h"
#include "common/status/status_macros.h"
#include "common/text/printable.h"
#include "common/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/commands/chat_image_expander.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/image_url_option.h"
#include "tools/tandem/commands/model_session.h"
#include "tools/tandem/commands/prompt_row.h"
#include "tools/tandem/commands/row_images.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/prompt_source.h"

namespace tandem::commands {
namespace {

using nlohmann::json;

struct GenerateOptions {
  ModelOptions model;
  std::string prompt;
  std::string input;
  int64_t max_tokens = 128;
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  std::optional<uint64_t> seed;
  int32_t n = 1;
  bool ignore_eos = false;
  bool allow_image_urls = false;
  bool processed_logprobs = false;
  bool as_json = false;
  std::vector<std::string> stop;
};

json ToJson(const driver::Completion& completion, size_t index, bool has_text, bool processed) {
  json line = {{"ids", completion.token_ids},
               {"text", has_text ? json(completion.text) : json()},
               {"logprobs", completion.logprobs},
               {"finish_reason", driver::FinishReasonName(completion.finish_reason)},
               {"policy_version", completion.version_spans.empty()
                                      ? json()
                                      : json(completion.version_spans.back().policy_version())},
               {"index", index}};
  if (processed) line["processed_logprobs"] = completion.processed_logprobs;
  return line;
}

absl::Status RunGenerate(const GenerateOptions& options) {
  Session session;
  ScratchFolder scratch(&session);
  if (options.prompt.empty() == options.input.empty()) {
    return Misuse(absl::InvalidArgumentError("give either --prompt TEXT or --input FILE.jsonl"));
  }
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  if (!options.model.model.empty()) {
    ASSIGN_OR_RETURN(tokenizer, driver::LoadTokenizerIfAny(options.model.model));
  }
  const absl::StatusOr<config::v1::RunConfig> stated =
      config::LoadRunConfig({}, options.model.overrides);
  if (!stated.ok()) return Misuse(stated.status());
  std::vector<driver::Prompt> prompts;
  if (!options.prompt.empty()) {
    prompts.emplace_back().text = options.prompt;
  } else {
    const RowImages images(options.input, FetchingIf(options.allow_image_urls,
                                                     [&session] { return session.interrupted(); }));
    std::optional<ChatImageExpander> chat_images;
    if (tokenizer != nullptr) chat_images.emplace(options.model.model, images, *tokenizer);
    const PromptRowReaders readers{.tokenizer = tokenizer.get(),
                                   .images = images,
                                   .chat_images = chat_images.has_value() ? &*chat_images : nullptr,
                                   .variables = stated->data().chat_template_kwargs()};
    RETURN_IF_ERROR(io::ForEachJsonLine(options.input, [&](const io::JsonFields& row) {
      absl::StatusOr<driver::Prompt> prompt = ReadPromptRow(row, readers);
      if (prompt.ok()) prompts.push_back(*std::move(prompt));
      return prompt.status();
    }));
  }
  config::v1::RunConfig config;
  RETURN_IF_ERROR(
      session.Explain(OpenModelSession(options.model, Side::kRollout, scratch, session, config)));
  ASSIGN_OR_RETURN(const auto info,
                   driver::RolloutFleet::GetServerInfo(session.fleet().replicas()[0]));

  rollout::v1::SamplingParams params;
  params.set_temperature(options.temperature);
  params.set_top_k(options.top_k);
  params.set_top_p(options.top_p);
  params.set_min_p(options.min_p);
  params.set_n(options.n);
  params.set_max_tokens(options.max_tokens);
  params.set_ignore_eos(options.ignore_eos);
  params.set_processed_logprobs(options.processed_logprobs);
  if (options.seed.has_value()) params.set_seed(*options.seed);
  for (const std::string& stop : options.stop) params.add_stop(stop);
  absl::StatusOr<std::vector<driver::Group>> groups = session.fleet().Generate(
      std::move(prompts), {.sampling = params, .return_text = info.has_tokenizer()});
  RETURN_IF_ERROR(session.Explain(groups.status()));
  const bool as_json = options.as_json || !options.input.empty() || !info.has_tokenizer();
  // A file gets the text as it is; a terminal would obey its control characters.
  const bool to_terminal = isatty(STDOUT_FILENO) == 1;
  const auto show = [to_terminal](const std::string& completion) {
    return to_terminal ? text::Printable(completion) : completion;
  };
  for (const driver::Group& group : *groups) {
    for (size_t i = 0; i < group.completions.size(); ++i) {
      const driver::Completion& completion = group.completions[i];
      const std::string line = as_json ? io::ToJsonLine(ToJson(completion, i, info.has_tokenizer(),
                                                               options.processed_logprobs))
                                       : absl::StrCat(show(completion.text), "\n");
      std::fwrite(line.data(), 1, line.size(), stdout);
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddGenerate(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand("generate", "Samples completions");
  auto options = std::make_shared<GenerateOptions>();
  AddModelOptions(*command, options->model);
  command->add_option("--prompt", options->prompt, "One prompt as text");
  auto* input = command->add_option(
      "--input", options->input,
      R"(JSONL of {"prompt"}, {"ids"} or {"messages"}, with "images", "tools" and )"
      R"("chat_template_kwargs" as in train; /dev/stdin for a pipe)");
  AddImageUrlsOption(*command, options->allow_image_urls)->needs(input);
  command->add_option("--max-tokens", options->max_tokens, "Longest completion")
      ->capture_default_str();
  command->add_option("--temperature", options->temperature, "0 is greedy")->capture_default_str();
  command->add_option("--top-k", options->top_k, "Keeps the k most likely tokens; 0 keeps all");
  command->add_option("--top-p", options->top_p,
                      "Keeps the most likely tokens up to probability p");
  command->add_option("--min-p", options->min_p,
                      "Drops tokens less likely than p times the most likely one");
  command->add_option("--seed", options->seed, "Makes the samples reproducible");
  command->add_option("--n", options->n, "Samples per prompt")->capture_default_str();
  command->add_option("--stop", options->stop, "String that ends a completion")
      ->allow_extra_args(false);
  command->add_flag("--ignore-eos", options->ignore_eos, "Continues past the end of sequence");
  command->add_flag("--processed-logprobs", options->processed_logprobs,
                    "Adds log-probs of the logits divided by the temperature");
  command->add_flag("--json", options->as_json, "Prints one JSON object per sample");
  command->callback([&runner, options] { runner = [options] { return RunGenerate(*options); }; });
}

}  // namespace tandem::commands
