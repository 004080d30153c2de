#include "tools/tandem/commands/run_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config/summary.h"
#include "common/io/json_text.h"
#include "common/text/count.h"
#include "nlohmann/json.hpp"

namespace tandem::commands {

using text::Count;

void PrintPlan(const config::v1::RunConfig& config, const model::ModelSpec& spec,
               const driver::PromptSource& train, bool supervised,
               std::optional<int64_t> policy_state) {
  const int64_t ranks = config.trainer().ranks();
  const double parameters = static_cast<double>(spec.num_parameters());
  const bool bf16 = config.model().dtype() == config::v1::ELEMENT_TYPE_BFLOAT16;
  absl::FPrintF(stderr, "model    %s, %.2fM parameters, %s; on %s", spec.architecture,
                parameters / 1e6, bf16 ? "bfloat16" : "float32", Count(ranks, "rank"));
  if (policy_state.has_value()) {
    absl::FPrintF(stderr, " %.1f MiB%s of parameters, gradients and optimizer",
                  static_cast<double>(*policy_state) / (1 << 20), ranks == 1 ? "" : " each");
  }
  absl::FPrintF(stderr, "\n");
  absl::FPrintF(stderr, "data     %s",
                Count(static_cast<int64_t>(train.prompts().size()), "prompt"));
  if (train.num_too_long() > 0) {
    absl::FPrintF(stderr, " (skipped %d longer than data.max_prompt_length = %d tokens)",
                  train.num_too_long(), config.data().max_prompt_length());
  }
  absl::FPrintF(stderr, "\nstep     %s\n",
                supervised ? absl::StrCat(Count(config.data().train_batch_size(), "row"),
                                          " = 1 optimizer step")
                           : config::DescribeBatch(config));
  const double epochs = static_cast<double>(config.trainer().total_steps()) *
                        static_cast<double>(config.data().train_batch_size()) /
                        static_cast<double>(train.epoch_size());
  absl::FPrintF(stderr, "run      %s (%.3g epochs) into %s\n",
                Count(config.trainer().total_steps(), "step"), epochs, config.run_dir());
}

std::string PlotPoints(const std::vector<std::pair<double, double>>& points, int width,
                       int height) {
  if (points.empty()) return "";
  double x_min = points[0].first, x_max = points[0].first;
  double y_min = points[0].second, y_max = points[0].second;
  for (const auto& [x, y] : points) {
    x_min = std::min(x_min, x);
    x_max = std::max(x_max, x);
    y_min = std::min(y_min, y);
    y_max = std::max(y_max, y);
  }
  if (y_max - y_min < 1e-9) y_max = y_min + 0.1;
  std::vector<std::string> grid(height, std::string(width, ' '));
  const auto column = [&](double x) {
    return x_max > x_min
               ? static_cast<int>(std::lround((x - x_min) / (x_max - x_min) * (width - 1)))
               : 0;
  };
  const auto row = [&](double y) {
    return static_cast<int>(std::lround((y_max - y) / (y_max - y_min) * (height - 1)));
  };
  for (const auto& [x, y] : points) grid[row(y)][column(x)] = '*';
  std::string text;
  for (int i = 0; i < height; ++i) {
    const double y = y_max - (y_max - y_min) * i / std::max(1, height - 1);
    absl::StrAppend(&text, absl::StrFormat("%8.3f |", y), grid[i], "\n");
  }
  absl::StrAppend(&text, std::string(9, ' '), "+", std::string(width, '-'), "\n");
  absl::StrAppend(
      &text, absl::StrFormat("%10s%-*.0f%*.0f\n", "", width / 2, x_min, width - width / 2, x_max));
  return text;
}

namespace {

// The rewards by step as a plot, and the evaluations as a table.
void PrintCurves(const driver::RunSummary& summary) {
  std::vector<std::pair<double, double>> points;
  for (size_t i = 0; i < summary.rewards.size(); ++i) {
    points.emplace_back(static_cast<double>(i + 1), summary.rewards[i]);
  }
  if (points.size() > 1) {
    absl::FPrintF(stderr, "\ntraining reward by step\n%s\n", PlotPoints(points, 64, 12));
  }
  if (summary.evaluations.empty()) return;
  absl::FPrintF(stderr, "%8s  %s\n", "step", "evaluation reward");
  for (const auto& [step, reward] : summary.evaluations) {
    absl::FPrintF(stderr, "%8d  %.4f\n", step, reward);
  }
}

}  // namespace

void PrintSummary(const config::v1::RunConfig& config, const driver::RunSummary& summary,
                  bool quiet) {
  if (!quiet) PrintCurves(summary);
  nlohmann::json line = {{"steps", summary.steps},
                         {"seconds", summary.seconds},
                         {"run_dir", config.run_dir()},
                         {"model", config.run_dir() + "/model"}};
  if (summary.best_step.has_value()) {
    line["best_model"] = config.run_dir() + "/best";
    line["best_step"] = *summary.best_step;
  }
  if (!summary.evaluations.empty()) {
    double best = summary.evaluations[0].second;
    for (const auto& [step, reward] : summary.evaluations) best = std::max(best, reward);
    line["reward_before"] = summary.evaluations.front().second;
    line["reward_after"] = summary.evaluations.back().second;
    line["reward_best"] = best;
  }
  std::printf("%s\n", io::JsonText(line).c_str());
  std::fflush(stdout);
}

}  // namespace tandem::commands
