// Names the processor of this process, as far as the bits of exact numerics depend on it. Processes
// with the same name compute the same bits; others may not.
//
//   ASSIGN_OR_RETURN(std::string processor, model::ProcessorOf(device));   // device_processor.h
//   model::SetProcessor(std::move(processor));   // before anything is computed
#ifndef TANDEM_COMMON_MODEL_PROCESSOR_H_
#define TANDEM_COMMON_MODEL_PROCESSOR_H_

#include <string>

namespace tandem::model {

// The CPU's instruction sets that the kernels use (kernels::InstructionSets()), "AVX3 AMX", or a
// GPU model, "NVIDIA H200, compute capability 9.0". The default is the CPU's. Thread-safe.
void SetProcessor(std::string processor);
std::string CurrentProcessor();

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PROCESSOR_H_
