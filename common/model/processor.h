// Which processor computes, so far as the bits of exact numerics depend on it; of the whole
// process. Processes of one name compute the same bits, others need not.
//
//   ASSIGN_OR_RETURN(std::string processor, model::ProcessorOf(device));   // device_processor.h
//   model::SetProcessor(std::move(processor));   // before anything is computed
#ifndef TANDEM_COMMON_MODEL_PROCESSOR_H_
#define TANDEM_COMMON_MODEL_PROCESSOR_H_

#include <string>

namespace tandem::model {

// The CPU's instructions that the kernels use (kernels::InstructionSets()), "AVX3 AMX", or a GPU's
// kind, "NVIDIA H200, compute capability 9.0". The default is the CPU's. Any thread.
void SetProcessor(std::string processor);
std::string CurrentProcessor();

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PROCESSOR_H_
