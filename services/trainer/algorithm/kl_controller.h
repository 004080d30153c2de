// KlController: how much a token's divergence from the reference costs, in rewards
// (algorithm.kl_ctrl).
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_KL_CONTROLLER_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_KL_CONTROLLER_H_

#include <cstdint>

namespace tandem::trainer {

struct KlControllerOptions {
  bool adaptive = false;
  double coefficient = 0.001;  // at the start
  double horizon = 10000;      // samples
  double target = 0.1;         // divergence of a token
};

// Adaptive as in Fine-Tuning Language Models from Human Preferences (1909.08593): proportional
// control in the logarithm. The coefficient is state that a checkpoint keeps.
class KlController {
 public:
  explicit KlController(const KlControllerOptions& options)
      : options_(options), coefficient_(options.coefficient) {}

  double coefficient() const { return coefficient_; }
  void set_coefficient(double coefficient) { coefficient_ = coefficient; }

  // After a step of `num_samples` with mean divergence `kl`:
  //   coefficient *= 1 + clip(kl / target - 1, -0.2, 0.2) * num_samples / horizon.
  // Nothing where it is fixed, or where kl is not finite.
  void Update(double kl, int64_t num_samples);

 private:
  const KlControllerOptions options_;
  double coefficient_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_KL_CONTROLLER_H_
