// BestModel: keeps the model of the step with the best value of a metric, in run_dir/best.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_BEST_MODEL_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_BEST_MODEL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "tools/tandem/driver/run_folder.h"

namespace tandem::driver {

// Used by one thread.
class BestModel {
 public:
  // `metric` is trainer.save_best; empty: keeps none. Smaller is better for names with "loss".
  explicit BestModel(std::string metric) : metric_(std::move(metric)) {}

  // Continues a resumed run, whose folder has the model of the step `saved`. Only that counts: a
  // better step whose model is gone cannot be the best one. Another metric's is replaced.
  void ResumeFrom(const std::optional<BestStep>& saved);

  // Calls `save` if the step's value is better than every earlier one. Only a successful save
  // counts.
  absl::Status OnStep(int64_t step, const Metrics& metrics,
                      const std::function<absl::Status()>& save);

  // Returns a sentence, once, if a step lacks the metric and it is none of an evaluation, which not
  // every step has: then no step may have it. Otherwise "".
  std::string NoteMissing(int64_t step, const Metrics& metrics);

  const std::string& metric() const { return metric_; }
  std::optional<int64_t> step() const { return step_; }  // of the best value so far
  double value() const { return value_; }

 private:
  bool IsBetter(double value) const;

  const std::string metric_;
  std::optional<int64_t> step_;
  double value_ = 0;
  bool has_noted_ = false;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_BEST_MODEL_H_
