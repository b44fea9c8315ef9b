// hiprtc: programs compile kernels while they run. Python starts the toolchain's compiler.
#include "state.hpp"

#include <cstring>

using namespace stand_in;

// As in hip/hiprtc.h, which the toolchain from PyPI does not have, and whose parameters are const from HIP 7 on.
using hiprtcProgram = struct _hiprtcProgram*;
enum hiprtcResult
{
    HIPRTC_SUCCESS                                    = 0,
    HIPRTC_ERROR_INVALID_INPUT                        = 3,
    HIPRTC_ERROR_INVALID_PROGRAM                      = 4,
    HIPRTC_ERROR_COMPILATION                          = 6,
    HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION = 8,
    HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION  = 9,
    HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID            = 10,
    HIPRTC_ERROR_INTERNAL_ERROR                       = 11,
};

namespace {

struct Source
{
    std::string text, name, log, code;
    std::vector<std::string> headers, header_names, expressions, lowered;
    bool compiled = false;
};

Source* source_of(hiprtcProgram program) { return reinterpret_cast<Source*>(program); }

std::vector<const char*> pointers_to(const std::vector<std::string>& texts)
{
    std::vector<const char*> made;
    for(const std::string& text : texts)
        made.push_back(text.c_str());
    return made;
}

// Called by Python: the log, the code, and the names of the expressions in their order.
void keep_result(void* program, int kind, const char* data, uint64_t bytes)
{
    Source& source = *static_cast<Source*>(program);
    const std::string text(data, bytes);
    if(kind == RESULT_LOG)
        source.log = text;
    else if(kind == RESULT_CODE)
        source.code = text;
    else
        source.lowered.push_back(text);
}

hiprtcResult copy_text(const std::string& text, bool terminated, char* target)
{
    if(target == nullptr)
        return HIPRTC_ERROR_INVALID_INPUT;
    std::memcpy(target, text.c_str(), text.size() + (terminated ? 1 : 0));
    return HIPRTC_SUCCESS;
}

} // namespace

TW_EXPORT const char* hiprtcGetErrorString(hiprtcResult result)
{
    switch(result)
    {
    case HIPRTC_SUCCESS: return "HIPRTC_SUCCESS";
    case HIPRTC_ERROR_INVALID_INPUT: return "HIPRTC_ERROR_INVALID_INPUT";
    case HIPRTC_ERROR_INVALID_PROGRAM: return "HIPRTC_ERROR_INVALID_PROGRAM";
    case HIPRTC_ERROR_COMPILATION: return "HIPRTC_ERROR_COMPILATION";
    case HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION: return "HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION";
    case HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION: return "HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION";
    case HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID: return "HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
    default: return "HIPRTC_ERROR_INTERNAL_ERROR";
    }
}

TW_EXPORT hiprtcResult hiprtcVersion(int* major, int* minor)
{
    if(major == nullptr || minor == nullptr)
        return HIPRTC_ERROR_INVALID_INPUT;
    *major = HIP_VERSION_MAJOR;
    *minor = HIP_VERSION_MINOR;
    return HIPRTC_SUCCESS;
}

TW_EXPORT hiprtcResult hiprtcCreateProgram(hiprtcProgram* program, const char* text, const char* name, int count,
                                           const char** headers, const char** names)
{
    if(program == nullptr || text == nullptr || count < 0 || (count > 0 && (headers == nullptr || names == nullptr)))
        return HIPRTC_ERROR_INVALID_INPUT;
    auto* const made = new Source;
    made->text       = text;
    made->name       = name == nullptr || *name == '\0' ? "program.hip" : name;
    made->headers.assign(headers, headers + count);
    made->header_names.assign(names, names + count);
    *program = reinterpret_cast<hiprtcProgram>(made);
    return HIPRTC_SUCCESS;
}

TW_EXPORT hiprtcResult hiprtcDestroyProgram(hiprtcProgram* program)
{
    if(program == nullptr || *program == nullptr)
        return HIPRTC_ERROR_INVALID_INPUT;
    delete source_of(*program);
    *program = nullptr;
    return HIPRTC_SUCCESS;
}

TW_EXPORT hiprtcResult hiprtcAddNameExpression(hiprtcProgram program, const char* expression)
{
    if(program == nullptr || expression == nullptr)
        return HIPRTC_ERROR_INVALID_INPUT;
    if(source_of(program)->compiled)
        return HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION;
    source_of(program)->expressions.push_back(expression);
    return HIPRTC_SUCCESS;
}

TW_EXPORT hiprtcResult hiprtcCompileProgram(hiprtcProgram program, int count, const char** options)
{
    if(program == nullptr || count < 0 || (count > 0 && options == nullptr))
        return HIPRTC_ERROR_INVALID_INPUT;
    make_ready();
    if(!open.load(std::memory_order_acquire))
        return HIPRTC_ERROR_INTERNAL_ERROR;
    Source& source         = *source_of(program);
    const auto headers     = pointers_to(source.headers);
    const auto names       = pointers_to(source.header_names);
    const auto expressions = pointers_to(source.expressions);
    const CompileRequest request{current_device,         source.text.c_str(),
                                 source.name.c_str(),    static_cast<int>(headers.size()),
                                 headers.data(),         names.data(),
                                 count,                  options,
                                 static_cast<int>(expressions.size()), expressions.data(),
                                 keep_result,            &source};
    int status = HIPRTC_ERROR_INTERNAL_ERROR;
    source.lowered.clear();
    callbacks.compile(&request, &status);
    source.compiled = status == HIPRTC_SUCCESS;
    return static_cast<hiprtcResult>(status);
}

TW_EXPORT hiprtcResult hiprtcGetLoweredName(hiprtcProgram program, const char* expression, const char** lowered)
{
    if(program == nullptr || expression == nullptr || lowered == nullptr)
        return HIPRTC_ERROR_INVALID_INPUT;
    const Source& source = *source_of(program);
    if(!source.compiled)
        return HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION;
    for(size_t at = 0; at < source.lowered.size(); ++at)
        if(source.expressions[at] == expression)
        {
            *lowered = source.lowered[at].c_str();
            return HIPRTC_SUCCESS;
        }
    return HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
}

TW_EXPORT hiprtcResult hiprtcGetProgramLogSize(hiprtcProgram program, size_t* bytes)
{
    if(program == nullptr || bytes == nullptr)
        return HIPRTC_ERROR_INVALID_INPUT;
    *bytes = source_of(program)->log.size() + 1;
    return HIPRTC_SUCCESS;
}

TW_EXPORT hiprtcResult hiprtcGetProgramLog(hiprtcProgram program, char* log)
{
    return program == nullptr ? HIPRTC_ERROR_INVALID_PROGRAM : copy_text(source_of(program)->log, true, log);
}

TW_EXPORT hiprtcResult hiprtcGetCodeSize(hiprtcProgram program, size_t* bytes)
{
    if(program == nullptr || bytes == nullptr)
        return HIPRTC_ERROR_INVALID_INPUT;
    *bytes = source_of(program)->code.size();
    return HIPRTC_SUCCESS;
}

TW_EXPORT hiprtcResult hiprtcGetCode(hiprtcProgram program, char* code)
{
    return program == nullptr ? HIPRTC_ERROR_INVALID_PROGRAM : copy_text(source_of(program)->code, false, code);
}
