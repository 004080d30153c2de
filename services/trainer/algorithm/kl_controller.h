// KlController: the coefficient of the KL penalty in rewards (algorithm.kl_ctrl).
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_KL_CONTROLLER_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_KL_CONTROLLER_H_

#include <cstdint>

namespace tandem::trainer {

struct KlControllerOptions {
  bool adaptive = false;
  double coefficient = 0.001;  // initial value
  double horizon = 10000;      // samples
  double target = 0.1;         // divergence per token
};

// Adaptive mode follows Fine-Tuning Language Models from Human Preferences (1909.08593):
// proportional control in the logarithm. Checkpoints save the coefficient.
class KlController {
 public:
  explicit KlController(const KlControllerOptions& options)
      : options_(options), coefficient_(options.coefficient) {}

  double coefficient() const { return coefficient_; }
  void set_coefficient(double coefficient) { coefficient_ = coefficient; }

  // Call after a step of `num_samples` with mean divergence `kl`:
  //   coefficient *= 1 + clip(kl / target - 1, -0.2, 0.2) * num_samples / horizon.
  // Does nothing if the coefficient is fixed or kl is not finite.
  void Update(double kl, int64_t num_samples);

 private:
  const KlControllerOptions options_;
  double coefficient_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_KL_CONTROLLER_H_
