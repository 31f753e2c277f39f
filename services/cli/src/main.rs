chassis::program!(cli::main);
